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
from fednode.testing.player import frame
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
    assert found["node/a"].tolist() == [[2, 1, 0], [1, 0, 1], [0, 0, 0]]
    assert found["node/b"].tolist() == [[0, 0, 0], [0, 0, 0], [3, 0, 2]]
    assert found["node/c"].tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]


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


def test_a_state_keeps_as_many_nodes_as_one_message_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows, "STATE_BYTES", 2 * 3 * 3 * 4)  # two nodes with three classes
    found = merged(A, B, C).shared
    assert [name for name in found if name.startswith("node/")] == ["node/a", "node/b"]
    monkeypatch.setattr(rows, "STATE_BYTES", 3 * 3 * 3 * 4)
    assert "node/c" in merged(A, B, C).shared
    assert rows.held_most("sums", 3, 3) == 2


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
    wrong = Tensors({**packed, "shared/node/a": 9 * packed["shared/node/a"]}, packed.classes)
    assert not one.state_fault(held, wrong)
    wrong = Tensors({**packed, "shared/node/a": -packed["shared/node/a"]}, packed.classes)
    assert "node/a: the number" in one.state_fault(held, wrong)
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
    assert found["node/b"].tolist()[2] == [3, 0, 2]
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
