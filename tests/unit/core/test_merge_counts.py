"""How many rounds merged what peers sent, and what is said of it."""

from __future__ import annotations

import pytest

from fednode.core.types import MergeCounts


@pytest.mark.parametrize(
    ("counts", "by_wish", "never", "sentence", "warns"),
    [
        ((0, 0), False, False, "", False),
        ((50, 0), False, True, "0 of 50 rounds merged what peers sent", True),
        ((1, 0), False, True, "0 of 1 rounds merged what peers sent", False),
        ((50, 1), False, False, "1 of 50 rounds merged what peers sent", True),
        ((50, 25), False, False, "25 of 50 rounds merged what peers sent", False),
        ((50, 0), True, False, "all 50 rounds ran alone, as the settings ask", False),
    ],
)
def test_what_is_said(
    counts: tuple[int, int], by_wish: bool, never: bool, sentence: str, warns: bool
) -> None:
    made = MergeCounts(*counts)
    assert made.never(by_wish) == never
    assert made.sentence(by_wish) == sentence
    assert made.warning(by_wish) == (sentence if warns else "")
