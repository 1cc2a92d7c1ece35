"""ZeroDFL's settings refuse what makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.zerodfl import ZeroDFLConfig


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"recipients": 0}, "policy.recipients is 0; it must be at least 1"),
        ({"admit_rise": -0.1}, "policy.admit_rise is -0.1; it must be at least 0"),
        ({"rows_shared": -1}, "policy.rows_shared is -1; it must be at least 0"),
    ],
)
def test_settings_out_of_range_are_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ZeroDFLConfig(**set_)


def test_the_edges_are_taken() -> None:
    made = ZeroDFLConfig(recipients=1, admit_rise=0.0, rows_shared=0)
    assert (made.recipients, made.rows_shared) == (1, 0)
