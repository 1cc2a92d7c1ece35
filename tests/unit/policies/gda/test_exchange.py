"""Policy gda: contributions are kept by sender, and all members end with the same bits."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fednode.core.rounds.kind import MethodPolicy
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.types import EMPTY, PRIVATE, Report, Tensors
from fednode.policies.gda import rows
from fednode.policies.gda.config import GDAConfig
from fednode.policies.gda.exchange import GDA, LOSSES, SUMS
from fednode.testing import frame
from fednode.wire.tensors import pack

START = Tensors({"rows": np.zeros((0, 3))})
WITH_MOMENT = Tensors({"rows": np.zeros((0, 3)), "moment": np.zeros(3)})


def method(**set_: Any) -> GDA:
    return GDA(GDAConfig(**set_), frame("gda"))


def told(sender: str, sums: list[list[float]], *classes: str) -> Contribution:
    return Contribution(sender, Tensors({"rows": np.array(sums).reshape(-1, 3)}, classes), 8)


A = told("a", [[2, 1, 0], [1, 0, 1]], "ant", "bee")
B = told("b", [[3, 0, 2]], "cow")
C = told("c", [[1, 1, 0]], "ant")
ALL = frozenset("abc")


def merged(
    *given: Contribution, held: MethodState | None = None, members: Any = ALL
) -> MethodState:
    state = held or method().first(START)
    return method().merge(Round(1, SUMS, state, state, members=frozenset(members)), given)


def test_contributions_are_kept_by_sender_in_one_list_of_classes() -> None:
    found = merged(A, B, C).shared
    assert found.classes == ("ant", "bee", "cow")
    assert found["node/a"].tolist() == [[0, 2, 1, 0], [1, 1, 0, 1]]
    assert found["node/b"].tolist() == [[2, 3, 0, 2]]
    assert found["node/c"].tolist() == [[0, 1, 1, 0]]


def test_whatever_the_order_of_messages_all_hold_the_same_bits() -> None:
    expected = merged(A, B, C).shared
    for order in itertools.permutations((A, B, C)):
        state = None
        for one in order:
            state = merged(one, held=state)
        assert state is not None
        assert state.shared == expected


def test_a_dead_node_stays_a_node_that_left_is_dropped_and_news_replaces() -> None:
    state = merged(A, B, C)
    assert merged(A, B, held=state).shared == state.shared
    assert merged(A, B, held=state, members="ab").shared == merged(A, B).shared
    more = told("c", [[2, 1, 1]], "dog")
    assert merged(more, held=state).shared == merged(A, B, more).shared
    nothing = told("c", [], *[])
    assert merged(nothing, held=state).shared.classes == ("ant", "bee", "cow")
    assert not merged(nothing, held=state).shared["node/c"].any()
    assert merged(Contribution("c", EMPTY, 8), held=state).shared == state.shared


def test_a_state_keeps_the_first_nodes_by_name_whatever_came_first() -> None:
    most = rows.NODES_MAX["means"]
    names = [f"n{at:03}" for at in range(most + 2)]
    told_ = [Contribution(name, A.tensors, 8) for name in names]
    first = merged(*told_[2:], members=names)
    found = merged(*told_[:2], held=first, members=names).shared
    assert [name for name in found if name.startswith("node/")] == [
        f"node/{name}" for name in names[:most]
    ]
    table, _ = pack(merged(*told_, members=names).packed(), "float32")
    assert table, "a late node can take it over"


def many(sender: str, names: list[str], width: int = 3, moment: int = 0) -> Contribution:
    sums = np.concatenate([np.ones((len(names), 1)), np.zeros((len(names), width - 1))], axis=1)
    more = {"moment": np.zeros(moment)} if moment else {}
    return Contribution(sender, Tensors({"rows": sums, **more}, sorted(names)), 8)


def counted(found: MethodState) -> dict[str, int]:
    shared = found.shared
    return {name: len(one.classes) for name, one in rows.kept_in(shared, shared.classes).items()}


HONEST = [many(f"h{at:02}", [f"class {5 * at + more}" for more in range(5)]) for at in range(30)]


@pytest.mark.parametrize("tag", ["!", "~"])
@pytest.mark.parametrize("liars", [1, 2, 3])
def test_a_member_of_4096_classes_takes_no_other_members_room(liars: int, tag: str) -> None:
    lies = [many(f"a{at}", [f"{tag}{at} {one:04}" for one in range(4096)]) for at in range(liars)]
    members = [one.sender for one in (*HONEST, *lies)]
    found = merged(*HONEST, *lies, members=members)
    kept = counted(found)
    assert [kept[one.sender] for one in HONEST] == [5] * 30
    assert [kept[one.sender] for one in lies] == [256] * liars
    one, first = method(), method().first(START)
    assert one.state_fault(first, found.packed()) == ""
    assert pack(found.packed(), "float32")[0], "a late node can take it over"
    assert merged(held=found, members=members).shared == found.shared
    for order in ((*lies, *HONEST), (*HONEST[::-1], *lies)):
        state = first
        for given in order:
            state = merged(given, held=state, members=members)
        assert counted(state) == kept
    said = one.note(first, found)
    assert "3,840 of the 4,096 classes of a0" in said
    assert "policy.classes_max" in said
    assert one.note(found, found) == ""
    assert "have room again" in one.note(found, first)


def test_members_of_many_classes_have_room_where_half_of_them_have_many() -> None:
    each = {"a": 1000, "b": 900, "c": 3}
    given = [many(name, [f"c{one:04}" for one in range(count)]) for name, count in each.items()]
    assert counted(merged(*given)) == {"a": 900, "b": 900, "c": 3}
    assert counted(merged(*given[1:])) == {"b": 256, "c": 3}, "the median of two is the lower"
    assert counted(merged(given[0], many("b", []), many("c", []))) == {"a": 256, "b": 0, "c": 0}
    state = method(classes_max=2).first(START)
    now = Round(1, SUMS, state, state)
    assert counted(method(classes_max=2).merge(now, given[1:])) == {"b": 3, "c": 3}


def test_classes_that_one_message_cannot_name_leave_each_member_an_equal_share() -> None:
    given = [many(f"n{at}", [f"{at} {one:03}" for one in range(250)]) for at in range(20)]
    shared = [many(one.sender, [*one.tensors.classes, "~ all have it"]) for one in given]
    found = merged(*shared, members=[one.sender for one in given])
    assert set(counted(found).values()) == {205}, "4,096 in all, one of them common"
    assert "~ all have it" in found.shared.classes
    assert method().state_fault(method().first(START), found.packed()) == ""


def test_fifty_sites_of_fifty_classes_all_count() -> None:
    given = [many(f"n{at:02}", [f"{at:02} {one}" for one in range(50)], 513) for at in range(50)]
    state = method().first(Tensors({"rows": np.zeros((0, 513))}))
    found = method().merge(Round(1, SUMS, state, state), given).shared
    assert len(found.classes) == 2500
    assert sum(array.nbytes for name, array in found.items()) < 6 << 20


def test_second_moments_go_before_classes_and_with_classes_that_have_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = method(share="sums", classes_max=3)
    first = one.first(WITH_MOMENT)
    given = [many(name, ["ant", "bee"], moment=3) for name in "ab"]
    liar = many("c", ["ant", "cat", "dog", "eel"], moment=3)
    found = one.merge(Round(1, SUMS, first, first), [*given, liar])
    assert counted(found) == {"a": 2, "b": 2, "c": 0}
    assert [name for name in found.shared if name.startswith("second/")] == ["second/a", "second/b"]
    assert "4 of the 4 classes of c" in one.note(first, found)
    monkeypatch.setattr(rows, "STATE_BYTES", 4 * 4 * 4)
    less = one.merge(Round(1, SUMS, first, first), given)
    assert counted(less) == {"a": 2, "b": 2}
    assert not [name for name in less.shared if name.startswith("second/")]


def test_an_array_of_any_shape_is_a_sentence_and_no_exception() -> None:
    """A member sends what it likes: nothing of it may end a node."""
    shapes = [(), (0,), (2,), (3,), (0, 4), (1, 4), (2, 2), (3, 2), (3, 3), (1, 1, 2), (0, 0)]
    names = ["choice", "rows", "left", "node/x", "second/x", "moment", "node/", "second/", "x"]
    for share, start in (("means", START), ("sums", WITH_MOMENT)):
        one = method(share=share)
        held = one.first(start)
        good = {f"shared/{name}": array for name, array in start.items()}
        for name, shape, classes in itertools.product(names, shapes, [(), ("a",), ("a", "b")]):
            for value in (0.0, 1.0, 0.5, -1.0, 1e30):
                array = np.full(shape, value)
                packed = Tensors({**good, f"shared/{name}": array}, classes)
                if not one.state_fault(held, packed):
                    one.merge(Round(1, SUMS, held, held.taking(packed)), [])
                for stage, prefix in itertools.product((SUMS, LOSSES), ("", "shared/")):
                    said = one.fault(stage, held, Tensors({prefix + name: array}, classes))
                    assert isinstance(said, str)


def test_a_late_joiner_takes_over_all_contributions_with_their_classes() -> None:
    state = merged(A, B, C)
    assert method().first(START).taking(state.packed()).shared == state.shared
    assert method().state_fault(method().first(START), state.packed()) == ""


def test_states_and_messages_that_no_images_give_are_refused() -> None:
    one, held = method(), merged(A, B, C)
    assert not one.fault(SUMS, held, A.tensors)
    assert not one.fault(SUMS, held, EMPTY)
    assert "it takes rows" in one.fault(SUMS, held, Tensors({"moment": [1.0]}))
    assert "longer" in one.fault(SUMS, held, told("a", [[1, 9, 0]], "ant").tensors)
    assert "there are personal" in one.fault(LOSSES, held, A.tensors)
    two = method(share="sums")
    assert "takes moment, rows" in two.fault(SUMS, two.first(WITH_MOMENT), A.tensors)
    packed = held.packed()
    for factors, words in (
        ([1, 9, 9, 9], ""),
        ([1, -1, 1, 1], "node/a: the number"),
        ([1, 1, 9, 9], "node/a: a sum"),
        ([9, 1, 1, 1], "a row of no class"),
        ([-1, 1, 1, 1], "not in the order"),
        ([0, 1, 1, 1], "not in the order"),
        ([0.5, 1, 1, 1], "a row of no class"),
    ):
        turned = packed["shared/node/a"] * np.array(factors)
        said = one.state_fault(held, Tensors({**packed, "shared/node/a": turned}, packed.classes))
        assert words in said, words
        assert bool(said) == bool(words)
    narrow = Tensors({**packed, "shared/left": [0.0]}, packed.classes)
    assert "left does not tell" in one.state_fault(held, narrow)
    assert "no array" in one.state_fault(
        held, Tensors({**packed, "shared/x": [1.0]}, packed.classes)
    )
    bad = Tensors({**packed, "shared/choice": np.full((3, 2), 99.0)}, packed.classes)
    assert "names no ratio" in one.state_fault(held, bad)
    assert "is missing" in one.state_fault(held, Tensors({}))


def test_a_node_uses_its_own_sums_as_it_knows_them_itself() -> None:
    own = {"own": np.array([[2, 1, 0], [1, 0, 1], [1, 0, 0]]), "own_moment": np.eye(2)}
    carry = Tensors({PRIVATE + name: one for name, one in own.items()}, ("ant", "bee", "rare"))
    state = replace(merged(A, B, C), carry=carry)
    found = method().used(state)
    assert found.classes == ("ant", "bee", "cow", "rare")
    assert found["own"].tolist() == [[2, 1, 0], [1, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert "node/a" not in found, "it stands under own"
    assert found["node/b"].tolist() == [[2, 3, 0, 2]]
    assert "rare" not in state.packed().classes
    again = method().used(method().using(method().first(START), found))
    assert again == found
    assert method().used(merged(A, B)) == merged(A, B).shared


def test_tables_choose_and_only_sums_and_tables_are_sent() -> None:
    one, state = method(), merged(A, B, C)
    now = Round(1, LOSSES, state, state, members=ALL)
    job = one.job(now)
    assert set(job.tensors) == set(rows.TABLES)
    assert job.reference == one.used(state)
    table = np.full(rows.TABLE, 3.0, np.float32)
    table[4, 5] = 1.0
    tables = Tensors(dict.fromkeys(rows.TABLES, table))
    found = one.merge(now, [Contribution("a", tables, 8), Contribution("b", EMPTY, 8)])
    assert found.shared["choice"].tolist() == [[4, 5]] * 3
    assert found.shared.classes == state.shared.classes
    assert one.merge(now, [Contribution("b", EMPTY, 8)]) == state
    first = replace(now, stage=SUMS, draft=one.first(START))
    private = Tensors({**A.tensors, "own_moment": np.eye(2)}, A.tensors.classes)
    sent = one.contribution(first, Report(tensors=private, metrics={}, samples=8))
    assert sent.tensors == A.tensors


@pytest.mark.parametrize("share", ["means", "sums"])
def test_sums_that_did_not_change_are_sent_in_each_tenth_round_only(share: str) -> None:
    one = method(share=share)
    moment = {"moment": np.array([2.0, 0.5, 1.0], np.float32)} if share == "sums" else {}
    first = one.first(WITH_MOMENT if share == "sums" else START)

    def sent(number: int, held: MethodState, tensors: Tensors) -> Tensors:
        report = Report(tensors=tensors, metrics={}, samples=8)
        return one.contribution(Round(number, SUMS, held, held, members=ALL), report).tensors

    mine = Tensors({**A.tensors, **moment}, A.tensors.classes)
    assert sent(1, first, mine) == mine
    theirs = [Contribution(name, mine, 8) for name in ("b", "c")]
    known = one.merge(Round(1, SUMS, first, first, members=ALL), theirs)
    assert sent(2, known, mine) == mine, "no round merged it"
    given = [Contribution("a", mine, 8), *theirs]
    known = one.merge(Round(2, SUMS, known, known, members=ALL), given)
    assert sent(3, known, mine) == sent(9, known, mine) == EMPTY
    assert sent(10, known, mine) == sent(20, known, mine) == mine
    fewer = Tensors({"rows": mine["rows"][:1], **moment}, ("ant",))
    more = Tensors({"rows": mine["rows"] * 2, **moment}, mine.classes)
    new = Tensors({"rows": mine["rows"], **moment}, ("ant", "dog"))
    for changed in (fewer, more, new, Tensors({"rows": np.zeros((0, 3)), **moment})):
        assert sent(3, known, changed) == changed
    if moment:
        turned = Tensors({"rows": mine["rows"], "moment": -moment["moment"]}, mine.classes)
        assert sent(3, known, turned) == turned


def test_norms_are_not_limited_because_counts_grow() -> None:
    kind = MethodPolicy(GDA)
    assert not kind.norm_checked
    assert kind.rounds == {"max": 0, "min_interval_s": 60.0}
