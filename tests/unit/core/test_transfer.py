"""Whose state is taken over, where merges trust everyone and where they do not."""

from __future__ import annotations

from dataclasses import replace

from node.core.transfer import ADOPTED, DIGEST, OF, STATE, VOUCH, Transfer
from node.core.types import Message, Tensors

OURS, THEIRS, LIES = Tensors({"a": [1.0]}), Tensors({"a": [2.0]}), Tensors({"a": [9.0]})


def message(
    sender: str, phase: str = "prompts", tensors: Tensors = OURS, base: str = ""
) -> Message:
    made = Message("m", "ff", "promptfl", sender, 3, phase, tensors)
    return replace(made, contributors=base)


def offered(tensors: Tensors, *vouched: Tensors) -> Transfer:
    """Return a node that asked a for its state, and heard others vouch for some."""
    transfer = Transfer()
    transfer.ask("a")
    transfer.offered(replace(message("a", STATE, tensors), facts={ADOPTED: "2"}), ["b", "c"])
    for name, held in zip("bc", vouched, strict=False):
        facts = {OF: "2", ADOPTED: "2", DIGEST: held.digest}
        transfer.vouched(replace(message(name, VOUCH, Tensors({})), facts=facts))
    return transfer


def test_where_all_differ_one_word_is_enough_only_where_merges_trust_everyone() -> None:
    transfer = offered(LIES, OURS, THEIRS)
    assert transfer.doubt(alone=False, mending=True, trusting=True) == ""
    assert "nobody else" in transfer.doubt(alone=False, mending=True, trusting=False)


def test_a_backed_state_is_taken_and_an_outvoted_one_is_not() -> None:
    for trusting in (True, False):
        assert offered(THEIRS, THEIRS, OURS).doubt(False, True, trusting) == ""
        assert "another state" in offered(LIES, OURS, OURS).doubt(False, True, trusting)


def test_a_liar_who_makes_all_differ_is_not_asked_for_its_state() -> None:
    transfer, high = Transfer(), "f" * 64
    heard = {"a": message("a", base=high), "b": message("b", base="1"), "c": message("c", base="2")}
    assert transfer.majority(heard, "0", trusting=False) == ""
    assert transfer.majority(heard, "0", trusting=True) == "a"
    heard["b"] = message("b", base="2")
    assert transfer.majority(heard, "0", trusting=False) == "b"
    assert transfer.majority(heard, "2", trusting=False) == ""


def test_moored_is_who_began_where_more_than_half_did() -> None:
    heard = {"a": message("a", base="1"), "b": message("b", base="2"), "c": message("c", base="1")}
    assert Transfer.moored(heard, "1")
    assert not Transfer.moored(heard, "2")
    assert Transfer.moored({}, "1")
    assert not Transfer.moored({"a": message("a", base="1")}, "2"), "half is no more than half"


def test_a_later_stage_is_merged_of_those_who_heard_the_same_where_they_are_most() -> None:
    heard = {"a": message("a", base="1"), "b": message("b", base="2"), "c": message("c", base="1")}
    for trusting in (True, False):
        assert list(Transfer.like_minded(heard, "1", trusting)) == ["a", "c"]
    # Half is not most: a mean takes nobody then, and a robust merge all.
    del heard["c"]
    heard["d"] = message("d", base="3")
    assert Transfer.like_minded(heard, "1", trusting=True).keys() == set()
    assert Transfer.like_minded(heard, "1", trusting=False) == heard
