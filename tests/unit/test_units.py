"""Numbers in the form that people read."""

from __future__ import annotations

import pytest

from fednode import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (120, "2 min"), (7200, "2 h"), (864_000, "10 days")],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e12, "2500.0 GB")]
)
def test_sizes(count: float, text: str) -> None:
    assert units.size(int(count)) == text


@pytest.mark.parametrize(
    ("names", "text"), [((), ""), (("a", "b"), "a, b"), (("a", "b", "c", "d"), "a, b and 2 more")]
)
def test_lists_end_with_how_many_more_there_are(names: tuple[str, ...], text: str) -> None:
    assert units.listed(names, 2) == text
