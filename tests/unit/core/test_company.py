"""How many rounds merged the prompts of how many peers, and what is said of it."""

from __future__ import annotations

import pytest

from fednode.core import company
from fednode.core.events import Adopt, Record
from fednode.core.types import EMPTY, PolicyState, Snapshot

SNAPSHOT = Snapshot(PolicyState(1, EMPTY, EMPTY), {})


def test_each_adopted_round_counts_under_the_number_of_its_givers() -> None:
    counts: company.Counts = {}
    for givers in ((), ("b",), ("b", "c"), ("c",)):
        adopt, record = company.counted(
            counts, 2, [Adopt(SNAPSHOT, givers), Record("kind", "text")]
        )
        assert isinstance(adopt, Adopt)
        assert isinstance(record, Record)
        assert adopt.snapshot.redone == 2
        counts = adopt.snapshot.company
    assert counts == {0: 1, 1: 2, 2: 1}
    assert (company.ran(counts), company.merged(counts)) == (4, 3)


@pytest.mark.parametrize(
    ("counts", "by_wish", "never", "sentence", "warns"),
    [
        ({}, False, False, "", False),
        ({0: 50}, False, True, "0 of 50 rounds merged a peer's prompts", True),
        ({0: 1}, False, True, "0 of 1 rounds merged a peer's prompts", False),
        ({0: 49, 2: 1}, False, False, "1 of 50 rounds merged a peer's prompts", True),
        ({0: 25, 1: 25}, False, False, "25 of 50 rounds merged a peer's prompts", False),
        ({0: 50}, True, False, "all 50 rounds ran alone, as the settings ask", False),
    ],
)
def test_what_is_said(
    counts: company.Counts, by_wish: bool, never: bool, sentence: str, warns: bool
) -> None:
    assert company.never(counts, by_wish) == never
    assert company.sentence(counts, by_wish) == sentence
    assert company.warning(counts, by_wish) == (sentence if warns else "")
