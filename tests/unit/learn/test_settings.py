"""Settings of tuning, cache and privacy refuse what makes no sense, with the key."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fednode.learn.settings import CacheSettings, PrivacySettings, TuningSettings


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"lr": 0.0}, "tuning.lr is 0; it must be above 0"),
        ({"lr": math.nan}, "tuning.lr is nan"),
        ({"context_length": 0}, "tuning.context_length is 0; it must be at least 1"),
        ({"batch_size": 0}, "tuning.batch_size is 0; it must be at least 1"),
        ({"momentum": 1.0}, "tuning.momentum is 1; it must be from 0 to 0.9999"),
        ({"weight_decay": -1.0}, "tuning.weight_decay is -1; it must be at least 0"),
        ({"evaluate_every": -1}, "tuning.evaluate_every is -1"),
        (
            {"template": "a photo"},
            r"tuning.template is 'a photo'; it must be auto, or have one \{\}",
        ),
        ({"template": "{} {}"}, r"it must be auto, or have one \{\}"),
        ({"init_words": "  "}, "tuning.init_words is empty"),
    ],
)
def test_tuning_out_of_range_is_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TuningSettings(**set_)


def test_a_cache_may_be_off_and_not_negative() -> None:
    assert CacheSettings(size_mb=0).size_mb == 0
    with pytest.raises(ValueError, match=r"cache\.size_mb is -1; it must be at least 0"):
        CacheSettings(size_mb=-1)


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"noise": 0.0}, "privacy.noise is 0; it must be above 0"),
        ({"noise": 1.0, "clip": -1.0}, "privacy.clip is -1"),
        ({"clip": 0.0}, "privacy.clip is 0; it must be above 0"),
        ({"noise": 1.0, "delta": 1.0}, "privacy.delta is 1; it must be between 0 and 1"),
    ],
)
def test_privacy_out_of_range_is_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PrivacySettings(**set_)


@pytest.mark.parametrize(("reads", "vectors"), [(77, 16), (64, 16), (32, 16), (16, 8), (1, 1)])
def test_auto_is_half_of_what_the_model_reads_and_at_most_sixteen(reads: int, vectors: int) -> None:
    auto = TuningSettings(context_length="auto")
    assert auto.fitted(reads).vectors == vectors
    assert TuningSettings(context_length=7).fitted(reads).vectors == 7
    with pytest.raises(AssertionError, match="once the model is known"):
        assert auto.vectors
