"""Initial words are refused for policies that tune nothing made of words."""

from __future__ import annotations

import pytest

from fednode import registry
from fednode.clip.model import FrozenClip
from fednode.errors import ConfigError
from fednode.learn.settings import TuningSettings


@pytest.mark.parametrize("name", ["fedclip", "fedtpg", "plan"])
def test_words_that_would_change_nothing_are_refused(name: str, model: FrozenClip) -> None:
    config = registry.policy(name).config_type()
    tuning = TuningSettings(init_words="a photo of a")
    with pytest.raises(ConfigError, match=f"tuning.init_words is 'a photo of a', .* policy {name}"):
        registry.prompt_module(name)(model, tuning, config).initial(1)
