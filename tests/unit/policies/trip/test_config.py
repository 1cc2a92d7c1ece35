"""TRIP's settings and the paper's counts."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.trip.config import TRIPConfig


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"experts": 9}, "policy.experts is 9; it must be from 1 to 8"),
        ({"teach": -1.0}, "policy.teach is -1"),
        ({"beta": 0.0}, "policy.beta is 0; it must be above 0"),
    ],
)
def test_settings_out_of_range_are_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TRIPConfig(**set_)
