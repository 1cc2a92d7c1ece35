"""An older state directory: what a node believes of its peers, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core import events as ev
from fednode.core.members.table import Members
from fednode.core.starts import OLDER, RELEASES_A_ROUND, Older
from fednode.core.types import Account
from tests.unit.core.scenes import context, only, recorded


def older(
    round_number: int = 5, peers: str = "bcd", private: bool = True, account: Account | None = None
) -> Older:
    """Return what node "a" knows that starts in a round."""
    own = replace(context(), private=private)
    return Older(own, Members(peers), round_number, account or Account())


@pytest.mark.parametrize(("peers", "voices"), [("b", 1), ("bc", 2), ("bcd", 2), ("bcdefg", 4)])
def test_more_than_half_of_the_others_must_have_seen_a_later_round(peers: str, voices: int) -> None:
    made = older(peers=peers)
    found = [bool(made.note_answer(peer, 12)) for peer in peers]
    assert found == [at == voices for at in range(1, len(peers) + 1)]


def test_the_largest_lies_of_a_minority_do_not_raise_what_most_say() -> None:
    made = older(peers="bcdef")
    effects = [
        effect
        for peer, later in zip("bcdef", (10**9, 10**9, 8, 7, 6), strict=True)
        for effect in made.note_answer(peer, later)
    ]
    assert sum(one.releases for one in only(effects, ev.Spend)) == RELEASES_A_ROUND * (8 - 5)


@pytest.mark.parametrize("later", [0, 4, 5])
def test_what_it_knows_itself_is_no_news(later: int) -> None:
    made = older(peers="b")
    assert made.note_answer("b", later) == []
    assert made.warning == ""


def test_rounds_count_once_and_further_ones_of_a_copy_count_too() -> None:
    made = older(peers="b")
    effects = made.note_answer("b", 8)
    assert recorded(effects) == [OLDER]
    assert only(effects, ev.Spend) == [ev.Spend(RELEASES_A_ROUND * 3, made.undecided)]
    assert made.note_answer("b", 8) == []
    assert made.note_answer("b", 9) == [ev.Spend(RELEASES_A_ROUND, made.undecided)], "said once"


def test_without_privacy_a_node_warns_and_goes_on() -> None:
    made = older(peers="b", private=False)
    (record,) = only(made.note_answer("b", 12), ev.Record)
    assert (record.kind, record.level) == (OLDER, "warning")
    assert "round 12" in record.text
    assert made.warning == record.text
    assert not made.undecided
    assert made.note_answer("b", 13) == []


@pytest.mark.parametrize(("round_number", "releases", "asked"), [(0, 12, 12), (3, 12, 3)])
def test_releases_of_an_account_whose_rounds_were_reset_are_counted(
    round_number: int, releases: int, asked: int
) -> None:
    account = Account(releases)
    assert older(round_number, "b", account=account).note_answer("b", asked) == []
    assert older(round_number, "b", account=account).note_answer("b", asked + 1)


def test_an_emptied_directory_begins_anew_without_privacy_and_is_asked_for_with_it() -> None:
    assert older(0, "b", private=False).note_answer("b", 12) == []
    assert recorded(older(0, "b", private=True).note_answer("b", 12)) == [OLDER]
