"""Settings of tuning, cache and privacy refuse what makes no sense, with the key."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from fednode.learn.settings import CacheSettings, PrivacySettings, TuningSettings

REFUSED: list[tuple[type, dict[str, Any], str]] = [
    *(
        (TuningSettings, set_, text)
        for set_, text in (
            ({"lr": 0.0}, "tuning.lr is 0; it must be above 0"),
            ({"lr": math.nan}, "tuning.lr is nan"),
            ({"context_length": 0}, "tuning.context_length is 0; it must be at least 1"),
            ({"batch_size": 0}, "tuning.batch_size is 0; it must be at least 1"),
            ({"momentum": 1.0}, "tuning.momentum is 1; it must be from 0 to 0.9999"),
            ({"weight_decay": -1.0}, "tuning.weight_decay is -1; it must be at least 0"),
            ({"evaluate_every": -1}, "tuning.evaluate_every is -1"),
            ({"template": "a photo"}, "tuning.template is 'a photo'; it must be auto, or have one"),
            ({"template": "{} {}"}, "it must be auto, or have one {}"),
            ({"init_words": "  "}, "tuning.init_words is empty"),
        )
    ),
    (CacheSettings, {"size_mb": -1}, "cache.size_mb is -1; it must be at least 0"),
    (PrivacySettings, {"noise": 0.0}, "privacy.noise is 0; it must be above 0"),
    (PrivacySettings, {"noise": 1.0, "clip": -1.0}, "privacy.clip is -1"),
    (PrivacySettings, {"clip": 0.0}, "privacy.clip is 0; it must be above 0"),
    (PrivacySettings, {"noise": 1.0, "delta": 1.0}, "privacy.delta is 1; it must be between 0"),
]


def test_settings_out_of_range_are_a_sentence() -> None:
    for kind, set_, text in REFUSED:
        with pytest.raises(ValueError, match=re.escape(text)):
            kind(**set_)
    assert CacheSettings(size_mb=0).size_mb == 0, "a cache may be off"


def test_auto_is_half_of_what_the_model_reads_and_at_most_sixteen() -> None:
    auto = TuningSettings(context_length="auto")
    for reads, vectors in ((77, 16), (64, 16), (32, 16), (16, 8), (1, 1)):
        assert auto.fitted(reads).vectors == vectors
        assert TuningSettings(context_length=7).fitted(reads).vectors == 7
    with pytest.raises(AssertionError, match="once the model is known"):
        assert auto.vectors
