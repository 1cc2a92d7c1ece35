"""Which contributions are merged where nodes hold different states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.rounds.engine import judge
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
    return replace(made, base=base)


def heard_from(**bases: str) -> dict[str, Message]:
    return {name: message(name, base) for name, base in bases.items()}


def test_a_first_stage_merges_all_and_names_those_who_began_elsewhere() -> None:
    own, other = NOW.held.digest, MethodState(THEIRS).digest
    heard = heard_from(b=own, c=other, d=other)
    note = "round 3: c, d began it with other prompts than this node"
    assert judge(NOW, heard, own, "", False) == (heard, note, False)
    heard = heard_from(b=own)
    assert judge(NOW, heard, own, "", False) == (heard, "", True)


def test_a_later_stage_leaves_out_those_who_merged_something_else() -> None:
    later = replace(NOW, stage="aggregators")
    heard = heard_from(b="1", c="2")
    note = "round 3: c merged prompts of other nodes than this node did"
    assert judge(later, heard, "1", "1", True) == ({"b": heard["b"]}, note, True)
    assert judge(later, heard_from(c="2"), "1", "1", True) == ({}, note, False)
    assert judge(later, heard_from(b="1"), "1", "1", True).note == ""


@pytest.mark.parametrize(
    ("own", "others", "agrees"),
    [
        ("1", ["1", "2", "1"], True),
        ("1", ["2", "2", "1"], False),  # half is no more than half
        ("1", ["2"], False),
        ("1", [], True),
        # A node that took the others' state after it had told its contribution counts as they do.
        ("mine", ["1", "1", "2"], False),
        ("mine", ["1", "1", "1"], True),
    ],
)
def test_the_base_agrees_where_more_than_half_began_from_it(
    own: str, others: list[str], agrees: bool
) -> None:
    base = NOW.held.digest
    said = [base if one == "1" else one for one in others]
    heard = {f"n{at}": message(f"n{at}", one) for at, one in enumerate(said)}
    assert judge(NOW, heard, base if own == "1" else own, "", False).most_agree == agrees


def test_a_later_stage_is_merged_of_those_who_heard_the_same_where_they_are_most() -> None:
    heard = heard_from(a="1", b="2", c="1")
    for trusting in (True, False):
        assert list(judge(NOW, heard, "1", "1", trusting).heard) == ["a", "c"]
    # Half is not most: a mean takes nobody then, and a robust merge all.
    heard = heard_from(a="1", b="2", d="3")
    assert judge(NOW, heard, "1", "1", trusting=True).heard == {}
    assert judge(NOW, heard, "1", "1", trusting=False).heard == heard
