"""Fed-DPT's settings: the paper's values, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.feddpt import FedDPTConfig


def test_the_paper_s_values_are_the_defaults() -> None:
    made = FedDPTConfig(domains=("photo",))
    assert (made.alpha, made.temperature, made.components) == (0.99, 0.1, "full")


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"domains": ()}, "policy.domains names 0 domains"),
        ({"alpha": 1.1}, "policy.alpha is 1.1; it must be from 0 to 1"),
        ({"temperature": 0.0}, "policy.temperature is 0; it must be above 0"),
        ({"wire_dtype": "int8"}, "policy.wire_dtype is int8"),
        ({"participants": -1}, "policy.participants"),
    ],
)
def test_settings_out_of_range_are_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        FedDPTConfig(**{"domains": ("photo",), **set_})
