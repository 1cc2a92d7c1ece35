"""FedPGP's settings refuse what makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.fedpgp import FedPGPConfig


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"rank": 0}, "policy.rank is 0; it must be at least 1"),
        ({"contrast": -1.0}, "policy.contrast is -1; it must be at least 0"),
        ({"temperature": 0.0}, "policy.temperature is 0; it must be above 0"),
    ],
)
def test_settings_out_of_range_are_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        FedPGPConfig(**set_)
