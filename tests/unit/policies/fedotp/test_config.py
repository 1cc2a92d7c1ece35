"""FedOTP's settings refuse what makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.fedotp import FedOTPConfig


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"mass": 0.0}, "policy.mass is 0; it must be above 0 and at most 1"),
        ({"mass": 1.5}, "policy.mass is 1.5"),
        ({"epsilon": 0.0}, "policy.epsilon is 0; it must be above 0"),
    ],
)
def test_settings_out_of_range_are_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        FedOTPConfig(**set_)
