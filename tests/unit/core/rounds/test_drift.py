"""Which contributions are merged where nodes hold different states."""

from __future__ import annotations

from dataclasses import replace

from fednode.core.rounds.drift import (
    Judged,
    base_agrees,
    first_stage,
    later_stage,
    like_minded,
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
    heard = {name: message(name, MethodState(base).digest) for name, base in bases.items()}
    own = NOW.held.digest
    note = "round 3: c, d began it with other prompts than this node"
    assert first_stage(NOW, heard, own) == Judged(heard, note, base_agrees=False)
    heard = {"b": message("b", own)}
    assert first_stage(NOW, heard, own) == Judged(heard)


def test_a_later_stage_leaves_out_those_who_merged_something_else() -> None:
    later = replace(NOW, stage="aggregators", base_agrees=False)
    heard = {"b": message("b", "1"), "c": message("c", "2")}
    found = later_stage(later, heard, "1", trusting=True)
    note = "round 3: c merged prompts of other nodes than this node did"
    assert found == Judged({"b": heard["b"]}, note, base_agrees=False)
    refused = later_stage(later, {"c": heard["c"]}, "1", trusting=True)
    assert (refused.heard, refused.refused) == ({}, True)
    assert later_stage(later, {"b": heard["b"]}, "1", trusting=True).note == ""


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
