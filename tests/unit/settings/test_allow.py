"""The section `allow`: what a node accepts by itself; without it, nothing."""

from __future__ import annotations

import pytest

from fednode.errors import ConfigError
from fednode.settings.allow import AllowSettings
from fednode.settings.read import Source, settings_of


def test_a_node_accepts_nothing_by_itself_unless_it_says_so() -> None:
    assert settings_of(Source("test", {})).allow == AllowSettings((), 0, False)


def test_what_a_node_accepts_is_set_in_its_own_file() -> None:
    tree = {"allow": {"policies": ["gda", "promptfl"], "rounds": 50, "model": True}}
    found = settings_of(Source("test", tree)).allow
    assert found == AllowSettings(("gda", "promptfl"), 50, True)
    with pytest.raises(ConfigError, match=r"allow.rounds is -1"):
        settings_of(Source("test", {"allow": {"rounds": -1}}))
