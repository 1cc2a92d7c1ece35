"""Which contributions are merged, and whom a node asks, where nodes hold different prompts."""

from __future__ import annotations

from dataclasses import replace

from fednode.core.rounds.drift import (
    Judged,
    base_agrees,
    first_stage,
    later_stage,
    like_minded,
    majority,
)
from fednode.core.rounds.method import MethodState, Round
from fednode.core.types import Message, Tensors

OURS, THEIRS = Tensors({"a": [1.0]}), Tensors({"a": [2.0]})
NOW = Round(3, "prompts", MethodState(OURS), MethodState(OURS))


def message(sender: str, base: str = "") -> Message:
    made = Message(
        mesh="m",
        fingerprint="ff",
        policy="promptfl",
        sender=sender,
        round=3,
        phase="prompts",
        tensors=OURS,
    )
    return replace(made, contributors=base)


def test_a_first_stage_merges_all_and_names_those_who_began_elsewhere() -> None:
    bases = {"b": OURS, "c": THEIRS, "d": THEIRS}
    heard = {name: message(name, base.digest) for name, base in bases.items()}
    found = first_stage(NOW, heard, OURS.digest, trusting=True)
    most = majority(heard, OURS.digest, trusting=True)
    note = "round 3: c, d began it with another state than this node"
    assert found == Judged(heard, note, base_agrees=False, holders=most)
    heard = {"b": message("b", OURS.digest)}
    assert first_stage(NOW, heard, OURS.digest, trusting=True) == Judged(heard)


def test_a_later_stage_leaves_out_those_who_merged_something_else() -> None:
    later = replace(NOW, stage="aggregators", base_agrees=False)
    heard = {"b": message("b", "1"), "c": message("c", "2")}
    found = later_stage(later, heard, "1", trusting=True)
    note = "round 3: c merged other contributions than this node before stage aggregators"
    assert found == Judged({"b": heard["b"]}, note, base_agrees=False)
    refused = later_stage(later, {"c": heard["c"]}, "1", trusting=True)
    assert (refused.heard, refused.refused) == ({}, True)
    assert later_stage(later, {"b": heard["b"]}, "1", trusting=True).note == ""


def test_a_liar_who_makes_all_differ_is_not_asked_for_its_state() -> None:
    high = "f" * 64
    heard = {"a": message("a", base=high), "b": message("b", base="1"), "c": message("c", base="2")}
    assert majority(heard, "0", trusting=False) == frozenset()
    assert majority(heard, "0", trusting=True) == {"a"}
    heard["b"] = message("b", base="2")
    assert majority(heard, "0", trusting=False) == {"b", "c"}
    assert majority(heard, "2", trusting=False) == frozenset()


def test_the_base_agrees_where_more_than_half_began_from_it() -> None:
    assert base_agrees(["1", "1", "2", "1"], "1")
    assert not base_agrees(["2", "1", "2", "1"], "1"), "half is no more than half"
    assert not base_agrees(["2", "1"], "2")
    assert base_agrees(["1"], "1")
    # A node that took the others' state after it had told its contribution counts as they do.
    assert not base_agrees(["mine", "1", "1", "2"], "1")
    assert base_agrees(["mine", "1", "1", "1"], "1")


def test_a_later_stage_is_merged_of_those_who_heard_the_same_where_they_are_most() -> None:
    heard = {"a": message("a", base="1"), "b": message("b", base="2"), "c": message("c", base="1")}
    for trusting in (True, False):
        assert list(like_minded(heard, "1", trusting)) == ["a", "c"]
    # Half is not most: a mean takes nobody then, and a robust merge all.
    del heard["c"]
    heard["d"] = message("d", base="3")
    assert like_minded(heard, "1", trusting=True).keys() == set()
    assert like_minded(heard, "1", trusting=False) == heard


def test_what_most_began_from_is_what_all_take() -> None:
    def said(base: str) -> Message:
        return message("b", base=base)

    assert majority({"b": said("x"), "c": said("x")}, "y", trusting=True) == {"b", "c"}
    assert majority({"b": said("x"), "c": said("y")}, "y", trusting=True) == frozenset()
    assert majority({"b": said("x")}, "y", trusting=True) == frozenset(), (
        "of two the greater counts"
    )
    assert majority({"b": said("y")}, "x", trusting=True) == {"b"}
    assert majority({"b": said("")}, "x", trusting=True) == frozenset()
