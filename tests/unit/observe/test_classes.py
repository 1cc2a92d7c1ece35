"""Class names of a node beside those of its peers: names of one side, and pairs alike."""

from __future__ import annotations

import pytest

from fednode.observe.classes import compared, may_mean_the_same


def test_equal_classes_and_no_peers_are_no_matter() -> None:
    assert compared(["cyst", "lesion"], {"b": ["lesion", "cyst"]}) == []
    assert compared(["cyst", "lesion"], {}) == compared(["cyst", "lesion"], {"b": []}) == []


def test_names_of_one_side_and_pairs_are_told() -> None:
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
