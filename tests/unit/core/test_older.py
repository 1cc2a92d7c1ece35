"""An older state directory: what a node believes of its peers, and what follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fednode.core import events as ev
from fednode.core.kernel import Kernel
from fednode.core.members.table import Members
from fednode.core.starts import OLDER, RELEASES_A_ROUND, Older
from fednode.core.types import Account, Report
from fednode.core.view import Life
from tests.unit.core.scenes import FACTS, context, message, only, recorded, zerodfl


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


def kernel(account: Account | None = None) -> Kernel:
    own = replace(context(), boot="0000000f", private=True)
    made = Kernel(own, zerodfl(), FACTS, anew=zerodfl, account=account)
    made.step(0.0, ev.Started())
    return made


def command(made: Kernel, word: Any) -> list[ev.Effect]:
    return made.step(2.0, ev.Commanded(word))


def told(made: Kernel, later: int = 3) -> list[ev.Effect]:
    """Let both peers answer."""
    return [
        effect
        for peer in "bc"
        for effect in made.step(1.0, ev.Delivered(peer, message("hello"), later=later))
    ]


def test_a_kernel_that_is_told_pauses_and_says_how_it_goes_on() -> None:
    made = kernel()
    effects = told(made)
    assert only(effects, ev.Spend)
    assert made.view().life == Life.PAUSED
    assert "fednode resume a --older-state" in made.view().warnings[0]
    for word in ("resume", "alone"):
        (record,) = only(command(made, word), ev.Record)
        assert record.level == "warning"
        assert "fednode resume --older-state" in record.text
    effects = command(made, "resume --older-state")
    assert only(effects, ev.Spend) == [ev.Spend(0)]
    assert made.view().life in {Life.RUNNING, Life.WAITING}
    assert made.view().warnings == ()
    assert only(command(made, "resume --older-state"), ev.Record)[0].level == "warning"


def test_a_node_that_waits_for_its_operator_sends_no_prompts() -> None:
    """It may be in its round when it learns that its state is older."""
    made = kernel()
    (tune,) = only(made.step(0.5, ev.Delivered("b", message("hello"))), ev.Tune)
    assert only(told(made), ev.Spend)
    report = Report(tensors=tune.job.tensors, metrics={}, samples=1)
    assert not only(made.step(1.5, ev.Tuned(tune.job, report)), ev.Send)


def test_a_kernel_starts_paused_where_its_account_says_so() -> None:
    made = kernel(Account(3, "peers have seen it later"))
    assert not only(told(made, later=0), ev.Tune)
    assert made.view().life == Life.PAUSED
    assert made.view().warnings == ("peers have seen it later",)


def test_a_kernel_tells_a_member_of_its_later_round() -> None:
    made = kernel()
    hello = message("hello", boot="0000000a", round=9, facts=FACTS)
    made.step(1.0, ev.Received(hello, 1))
    ping = message("ping", boot="0000000b", round=4)
    assert only(made.step(2.0, ev.Received(ping, 2)), ev.Answer)[0].later == 9
