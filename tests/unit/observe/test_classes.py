"""Class names of a node beside those of its peers: names of one side, and pairs alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from fednode.observe.classes import AGAIN_S, FRESH_S, Classes, compared, may_mean_the_same
from fednode.observe.client import ASKED_MAX
from fednode.wire.gen.status_pb2 import StatusReply


def test_names_of_one_side_and_pairs_are_told() -> None:
    for names in (["lesion", "cyst"], []):
        assert compared(["cyst", "lesion"], {"b": names}) == []
    others = {"c": ["cyst", "lesion type 1", "mole"], "b": ["cyst", "mole"]}
    assert compared(["cyst", "lesion"], others) == [
        "Only this node has 1 of its 2 classes: lesion.",
        "Classes of peers that this node does not have: lesion type 1 (c), mole (b, c).",
        "Class names that may mean the same: 'lesion' here and 'lesion type 1' at c. If they do, "
        "give both one name with data.rename ({FOLDER: NAME}) at one of the nodes.",
    ]


def test_a_peer_with_both_names_tells_the_classes_apart() -> None:
    others = {"b": ["lesion", "lesion type 1"], "c": ["lesion type 1"]}
    (_, pairs) = compared(["lesion"], others)
    assert "'lesion' here and 'lesion type 1' at c." in pairs
    assert len(compared(["lesion"], {"b": others["b"]})) == 1


def test_many_names_are_counted_and_none_is_left_out_where_all_are_asked_for() -> None:
    own = [f"kind {chr(97 + at)}" for at in range(9)]
    (only, there) = compared(own, {"b": ["cyst"]})
    assert (
        only == "Only this node has its classes: kind a, kind b, kind c, kind d, kind e and 4 more."
    )
    assert there == "Classes of peers that this node does not have: cyst (b)."
    assert compared(own, {"b": ["cyst"]}, most=9)[0].endswith("kind h, kind i.")


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        *(("lesion", "lesion type 1", True), ("Lesion", "lesion", True), ("cyst", "cysts", True)),
        *(("benign-nevus", "benignnevus", True), ("adenoma", "adenome", True)),
        *(("grade 1", "grade 2", False), ("bee", "beer", False), ("cyst", "lesion", False)),
        *(("1", "2", False), ("ÖDEM", "ödem", True)),
    ],
)  # fmt: skip
def test_alike(first: str, second: str, alike: bool) -> None:
    assert may_mean_the_same(first, second) == may_mean_the_same(second, first) == alike


async def asked(
    classes: Classes, names: Sequence[str], now: float, *replies: StatusReply
) -> list[str]:
    """Let peers be asked that answer so; return the names of those that were asked."""
    due = list[str]()

    async def ask(names: Sequence[str]) -> Mapping[str, StatusReply]:
        due.extend(names)
        return {reply.name: reply for reply in replies}

    await classes.look(names, ask, now)
    return due


async def test_a_peer_is_asked_for_its_classes_until_it_tells_them_and_then_now_and_again() -> None:
    found, silent = Classes(), StatusReply(name="b")
    assert await asked(found, ["b"], 0.0, silent) == ["b"]
    assert await asked(found, ["b"], AGAIN_S - 1) == []
    assert await asked(found, ["b"], AGAIN_S, StatusReply(name="b", classes=["cyst"])) == ["b"]
    assert await asked(found, ["b"], AGAIN_S + FRESH_S - 1) == []
    assert await asked(found, ["b"], AGAIN_S + FRESH_S) == ["b"]  # it does not answer
    assert found.said(["mole"])[0] == "Only this node has its classes: mole."
    assert len(await asked(found, [f"p{at}" for at in range(99)], 0.0)) == ASKED_MAX


async def test_a_peer_that_keeps_its_class_names_is_named_and_one_that_loads_is_not() -> None:
    found = Classes()
    replies = StatusReply(name="b", life="running"), StatusReply(name="c", life="loading")
    await asked(found, ["b", "c"], 0.0, *replies)
    (said,) = found.said(["mole"])
    assert said == "not compared, because they tell no class names (data.tell_classes): b"
    told = StatusReply(name="b", life="running", classes=["mole"])
    await asked(found, ["b"], FRESH_S, told)
    assert found.said(["mole"]) == []
