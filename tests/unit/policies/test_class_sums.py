"""Statements of class sums: what is sent and when, what is refused, and what has room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fednode.core.rounds.statements import pack
from fednode.core.types import EMPTY, Array, Tensors
from fednode.policies.class_sums import (
    CLASSES_MAX,
    ROWS,
    fitting,
    room_note,
    rows_fault,
    rows_of,
    statements_in,
    sums_of,
    to_send,
)
from fednode.policies.gaussian import Sums
from fednode.wire import codec

GOOD = np.array([[2.0, 1.0, 1.0], [1.0, 0.0, -1.0]], np.float32)
SIZE = 16


def statement(names: list[str], width: int = 3) -> Tensors:
    rows = np.concatenate([np.ones((len(names), 1)), np.zeros((len(names), width - 1))], axis=1)
    return Tensors({ROWS: rows}, sorted(names))


def counts(statements: dict[str, Tensors], classes_max: int = 256) -> dict[str, int]:
    return {name: len(one.classes) for name, one in fitting(statements, classes_max).items()}


# What a node sends --------------------------------------------------------------------------------


class Growing:
    """A node whose images come and go; each message is computed after a restart."""

    def __init__(self, least: int = 5) -> None:
        self.least, self.carry = least, EMPTY

    def message(
        self, *images: tuple[str, Any], patients: str = "", noise: float = 0.0
    ) -> dict[str, Array]:
        """Return what the node sends of each class. images: a class, and which of its images."""
        digests = [f"{name} {at}".encode() for name, at in images]
        x = np.array([np.random.default_rng([*one]).normal(size=SIZE) for one in digests])
        x = x / np.linalg.norm(x, axis=1, keepdims=True) + noise
        names, owners = [name for name, _ in images], [one.encode() for one in patients]
        sums = Sums.of(x, names)
        sent, carry = to_send(self.carry, sums, names, digests, self.least, owners)
        assert rows_fault(sent, 1 + SIZE) == ""
        self.carry = Tensors(dict(carry), carry.classes)
        return dict(zip(sent.classes, sent[ROWS], strict=True))


def some(name: str, *places: int) -> list[tuple[str, int]]:
    return [(name, at) for at in places]


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        (range(10), range(11), False),
        (range(10), range(14), False),
        (range(10), range(15), True),
        (range(10), range(1, 10), False),
        (range(10), range(4, 10), False),
        (range(10), range(5, 10), True),
        (range(10), range(2, 12), False),
        (range(10), range(3, 12), True),
        (range(5), range(4), False),
        (range(1000), range(1001), False),
    ],
)
def test_a_class_is_sent_again_once_so_many_images_changed(
    before: range, after: range, sent: bool
) -> None:
    """The difference of two messages would tell the feature of the images that changed."""
    node, other = Growing(), some("bee", *range(6))
    first = node.message(*some("ant", *before), *other)
    second = node.message(*some("ant", *after), *other, noise=1e-6)
    assert (second["bee"] == first["bee"]).all(), "another rounding of features is no change"
    assert (second["ant"] != first["ant"]).any() == sent
    if not sent:  # changes add up, over any number of messages
        for more in range(100, 105):
            last = node.message(*some("ant", *after, *range(100, more + 1)), *other)
        assert (last["ant"] != first["ant"]).any()


def test_a_class_that_comes_back_tells_no_single_image() -> None:
    node, other = Growing(), some("bee", *range(5))
    first = node.message(*some("ant", *range(10)), *other)
    assert "ant" not in node.message(*some("ant", *range(4)), *other)
    assert "ant" not in node.message(*other)
    again = node.message(*some("ant", *range(9)), *other)
    assert (again["ant"] == first["ant"]).all()
    assert set(again) == set(first)
    assert (node.message(*some("ant", *range(15)), *other)["ant"] != first["ant"]).any()


# What a node takes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "classes", "words"),
    [
        (GOOD, ("a", "b"), ""),
        (np.zeros((0, 3)), (), ""),
        (GOOD, ("a",), "rows are"),
        (GOOD[:, :2], ("a", "b"), "rows are"),
        (GOOD[0], ("a", "b"), "rows are"),
        (GOOD, ("b", "a"), "not sorted"),
        (GOOD, ("a", "a"), "named twice"),
        (GOOD * [[0.5], [1.0]], ("a", "b"), ""),
        (np.add(GOOD, np.array([[0.5, 0, 0], [0, 0, 0]])), ("a", "b"), "not a whole number from 1"),
        (GOOD * [[0, 1, 1], [1, 1, 1]], ("a", "b"), "not a whole number from 1"),
        (GOOD * [[-1, 1, 1], [1, 1, 1]], ("a", "b"), "not a whole number from 1"),
        (GOOD * [[1e6, 1, 1], [1, 1, 1]], ("a", "b"), "more than 1,000,000 images"),
        (GOOD * [[1, 2, 2], [1, 1, 1]], ("a", "b"), "longer than the number of its images"),
    ],
)
def test_sums_that_no_images_give_are_refused(
    rows: np.ndarray, classes: tuple[str, ...], words: str
) -> None:
    found = rows_fault(Tensors({ROWS: rows}, classes), 3)
    assert (words in found) if words else not found


def test_other_arrays_are_refused() -> None:
    assert "carries nothing; it takes rows" in rows_fault(EMPTY, 3)
    assert "carries moment, rows" in rows_fault(Tensors({ROWS: GOOD, "moment": [1.0]}), 3)


def test_sums_come_back_by_sender() -> None:
    first = Sums.of(np.random.default_rng(1).normal(size=(4, 3)), ["a", "c", "c", "a"])
    second = Sums.of(np.random.default_rng(2).normal(size=(2, 3)), ["b", "c"])
    held = {
        name: Tensors({ROWS: rows_of(one)}, one.classes)
        for name, one in {"x": first, "": second}.items()
    }
    statements = statements_in(pack(held), pack(held).classes)
    found = {sender: sums_of(one) for sender, one in statements.items()}
    assert list(found) == ["", "x"]
    assert found["x"].classes == ("a", "c")
    assert np.allclose(found["x"].sums, first.sums)
    assert found[""].counts.tolist() == [1, 1]


# What has room ------------------------------------------------------------------------------------

HONEST = {
    f"h{at:02}": statement([f"class {5 * at + more}" for more in range(5)]) for at in range(30)
}


@pytest.mark.parametrize(("liars", "tag"), [(1, "!"), (3, "~")])
def test_a_member_of_4096_classes_takes_no_other_member_s_room(liars: int, tag: str) -> None:
    lies = {
        f"a{at}": statement([f"{tag}{at} {one:04}" for one in range(4096)]) for at in range(liars)
    }
    held = {**lies, **HONEST}
    found = fitting(held, 256)
    assert {name: len(found[name].classes) for name in HONEST} == dict.fromkeys(HONEST, 5)
    assert {name: len(found[name].classes) for name in lies} == dict.fromkeys(lies, 256)
    assert dict(reversed(fitting(dict(reversed(held.items())), 256).items())) == found
    left_out = ", ".join(f"3,840 of the 4,096 classes of {name}" for name in lies)
    assert room_note(held, found, 256).startswith(f"{left_out} do not count: policy.classes_max")
    assert room_note(HONEST, fitting(HONEST, 256), 256) == ""


def test_members_of_many_classes_have_room_where_half_of_them_have_many() -> None:
    given = {
        name: statement([f"c{one:04}" for one in range(count)])
        for name, count in {"a": 1000, "b": 900, "c": 3}.items()
    }
    assert counts(given) == {"a": 900, "b": 900, "c": 3}
    del given["a"]
    assert counts(given) == {"b": 256, "c": 3}, "the median of two is the lower"
    assert counts(given, 2) == {"b": 3, "c": 3}


def test_classes_that_are_too_many_in_all_leave_each_member_an_equal_share() -> None:
    given = {
        f"n{at}": statement(["~ all have it", *(f"{at} {one:03}" for one in range(250))])
        for at in range(20)
    }
    found = fitting(given, 256)
    assert {len(one.classes) for one in found.values()} == {205}, "4,096 in all, one in common"
    assert all("~ all have it" in one.classes for one in found.values())


def test_statements_of_too_many_bytes_leave_each_member_an_equal_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fednode.policies.class_sums.BYTES_MAX", 100_000)
    given = {f"n{at}": statement([f"c{one:03}" for one in range(400)], width=17) for at in range(8)}
    found = fitting(given, CLASSES_MAX)
    assert len({len(one.classes) for one in found.values()}) == 1
    size = sum(one.nbytes for one in found.values())
    assert 100_000 - 8 * 4 * 17 < size <= 100_000
    assert codec.CLASSES_MAX == CLASSES_MAX


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        ("aaaaabbbbb", "", False),  # two patients with ten images
        ("abcde", "", True),
        ("abcde", "abcdeffffffffff", False),  # one new patient
        ("abcde", "aabbccddee", True),  # a new image of each of five
        ("abcde", "abcdefghij", True),
    ],
)
def test_where_patients_are_known_they_are_counted(before: str, after: str, sent: bool) -> None:
    """Five patients change a class before it is sent, however many images one of them has."""
    node = Growing()

    def message(patients: str) -> dict[str, Array]:
        images = [(f"{who} {patients[:at].count(who)}") for at, who in enumerate(patients)]
        return node.message(*(("cyst", one) for one in images), patients=patients)

    first = message(before)
    if after:
        assert (message(after)["cyst"][0] == len(after)) == sent
    else:
        assert bool(first) == sent
