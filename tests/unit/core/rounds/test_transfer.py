"""Whose state is taken over, where merges trust everyone and where they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.rounds.transfer import ADOPTED, DIGEST, OF, PAST, STATE, VOUCH, Transfer
from fednode.core.types import Message, Tensors

OURS, THEIRS, LIES = Tensors({"a": [1.0]}), Tensors({"a": [2.0]}), Tensors({"a": [9.0]})


def message(
    sender: str, phase: str = "prompts", tensors: Tensors = OURS, base: str = ""
) -> Message:
    made = Message(
        mesh="m",
        fingerprint="ff",
        policy="promptfl",
        sender=sender,
        round=3,
        phase=phase,
        tensors=tensors,
    )
    return replace(made, contributors=base)


def offered(tensors: Tensors, vouched: dict[str, str], silent: str = "") -> Transfer:
    """Return a node that asked a for its state, and what others vouched for, by digest."""
    transfer = Transfer()
    transfer.begin(["a"])
    assert transfer.next_giver() == "a"
    offer = replace(message("a", STATE, tensors), facts={ADOPTED: "2"})
    transfer.offered(offer, [*vouched, *silent])
    for name, digest in vouched.items():
        assert not transfer.vouched(vouch(name, digest, of=1)), "of another round: no answer"
        assert not transfer.vouched(vouch("zoe", digest)), "nobody asked zoe"
        assert transfer.vouched(vouch(name, digest))
    return transfer


def vouch(sender: str, digest: str, of: int = 2) -> Message:
    facts = {OF: str(of), ADOPTED: "2", DIGEST: digest}
    return replace(message(sender, VOUCH, Tensors({})), facts=facts)


@pytest.mark.parametrize(
    ("vouched", "believed"),
    [
        ({"b": THEIRS.digest, "c": THEIRS.digest, "d": "x"}, True),
        ({"b": THEIRS.digest, "c": "", "d": ""}, False),
        ({"b": "", "c": "", "d": "", "e": ""}, False),
        ({"b": THEIRS.digest, "c": "x", "d": "x", "e": "x"}, False),
    ],
)
def test_what_is_not_known_counts_against(vouched: dict[str, str], believed: bool) -> None:
    transfer = offered(THEIRS, vouched)
    assert transfer.heard_all
    assert transfer.believed(3) == believed


def test_of_three_who_hold_another_state_one_is_asked_next() -> None:
    transfer = offered(LIES, {"b": "x", "c": "x", "d": "x", "e": LIES.digest})
    assert transfer.holders(3) == ["b", "c", "d"]
    assert transfer.holders(4) == []


def test_where_all_differ_any_state_mends_and_a_rarer_one_does_not() -> None:
    assert offered(THEIRS, {"b": OURS.digest, "c": LIES.digest}).agreed_by_trust()
    assert offered(THEIRS, {"b": "", "c": ""}).agreed_by_trust()
    assert not offered(LIES, {"b": OURS.digest, "c": OURS.digest}).agreed_by_trust()


def test_witnesses_that_go_are_not_waited_for() -> None:
    transfer = offered(THEIRS, {}, silent="bc")
    transfer.lost("b")
    assert not transfer.heard_all
    transfer.lost("c")
    assert transfer.heard_all


def test_who_broke_a_promise_is_asked_last_and_nobody_twice_in_an_attempt() -> None:
    transfer = Transfer(broken={"b"})
    transfer.begin(["b", "d", "c"])
    assert [transfer.next_giver() for _ in range(4)] == ["d", "c", "b", ""]
    assert not transfer.busy


def test_digests_of_the_last_rounds_alone_are_kept_and_wishes_are_few() -> None:
    transfer = Transfer()
    for number in range(1, 30):
        transfer.adopted(number, OURS)
    assert sorted(transfer.past) == list(range(30 - PAST, 30))
    question = replace(vouch("b", ""), facts={OF: "28"})
    assert transfer.vouch(question, 29) == {OF: "28", ADOPTED: "29", DIGEST: OURS.digest}
    unknown = transfer.vouch(replace(question, facts={OF: "x"}), 29)
    assert unknown is not None
    assert unknown[DIGEST] == ""
    assert [transfer.may_give("b") for _ in range(5)] == [True, True, True, False, False]
    transfer.adopted(30, OURS)
    assert transfer.may_give("b")


def test_a_witness_of_the_round_under_way_answers_after_it() -> None:
    transfer = Transfer(past={4: OURS.digest})
    assert transfer.vouch(replace(vouch("b", ""), facts={OF: "5"}), 4) is None
    transfer.adopted(5, THEIRS)
    assert transfer.owed(5) == [("b", {OF: "5", ADOPTED: "5", DIGEST: THEIRS.digest})]
    assert transfer.owed(5) == []
