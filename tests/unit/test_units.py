"""Numbers in the form that people read."""

from __future__ import annotations

import pytest

from fednode.units import duration, listed, size


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        *((duration(0.4), "0 s"), (duration(59), "59 s"), (duration(120), "2 min")),
        *((duration(7200), "2 h"), (duration(864_000), "10 days")),
        *((size(0), "0 B"), (size(999), "999 B"), (size(1500), "1.5 kB")),
        *((size(2_500_000_000_000), "2500.0 GB"), (listed((), 2), ""), (listed("ab", 2), "a, b")),
        (listed("abcd", 2), "a, b and 2 more"),
    ],
)
def test_times_sizes_and_lists(text: str, wanted: str) -> None:
    assert text == wanted
