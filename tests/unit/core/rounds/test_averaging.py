"""Federated averaging by value: contributions, the rounding error that is owed, and the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from fednode.core.events import Received, RoundDue
from fednode.core.merge.numbers import roundtrip
from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Dtype, Report, Tensors
from fednode.policies.fedotp import FedOTPConfig
from fednode.testing import frame
from tests.contract.player import PEERS, Case, up
from tests.contract.player import report as report_of
from tests.unit.policies.methods import FEDOTP

START = Tensors({"context": [[1.0, 2.0, 3.0]]})
RNG = np.random.default_rng(3)


def method(**config: Any) -> Averaging:
    return Averaging(AveragingConfig(**config), frame("averaging"))


def at(state: MethodState, number: int = 1) -> Round:
    return Round(number, "prompts", state, state)


def report(tensors: Tensors) -> Report:
    return Report(tensors=tensors, metrics={}, samples=8)


def row(*values: float) -> Tensors:
    return Tensors({"context": [list(values)]})


def given(*pairs: tuple[float, int]) -> list[Contribution]:
    names = "abcdef"
    return [Contribution(names[n], row(x, x, x), size) for n, (x, size) in enumerate(pairs)]


def test_a_node_sends_what_it_tuned() -> None:
    sent = method().contribution(at(MethodState(START)), report(row(4.0, 5.0, 6.0)))
    assert sent.tensors == row(4.0, 5.0, 6.0)
    assert sent.draft == MethodState(START)


def test_in_int8_changes_and_errors_add_up_to_what_was_tuned() -> None:
    """Error feedback: all that was sent and the error still owed are all that was tuned."""
    averaging, state = method(wire_dtype="int8"), MethodState(START)
    changes, told = np.zeros((1, 3)), np.zeros((1, 3))
    for number in range(1, 6):
        change = RNG.normal(size=(1, 3)) * [1.0, 1e-3, 1e-2]  # two of three round badly
        tuned = Tensors({"context": state.shared["context"] + change})
        sent = averaging.contribution(at(state, number), report(tuned))
        heard = roundtrip(sent.tensors, "int8")["context"]
        changes, told = changes + change, told + heard
        owed = sent.draft.arrays["own/context"]
        assert np.abs(owed).max() > 0
        assert np.allclose(told + owed, changes, atol=1e-5)
        state = replace(sent.draft, shared=tuned)
    assert np.abs(told - changes).max() <= np.abs(owed).max() + 1e-5, "no error is lost for good"


def test_in_int8_the_mean_of_the_changes_moves_the_last_prompts() -> None:
    averaging, now = method(wire_dtype="int8"), at(MethodState(START))
    merged = averaging.merge(now, averaging.received(now, given((1.0, 8), (3.0, 8))))
    assert merged.shared == row(3.0, 4.0, 5.0)


class Largest(Averaging):
    """A policy of one's own, whose merge takes the contributions as prompts."""

    name: ClassVar[str] = "largest"

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        rows = [contribution.tensors["context"] for contribution in given]
        return replace(now.draft, shared=Tensors({"context": np.max(rows, axis=0)}))


@pytest.mark.parametrize("form", ["float32", "float16", "int8"])
def test_a_merge_of_one_s_own_gets_prompts_in_each_number_format(form: Dtype) -> None:
    """Equal contributions merge to themselves, the node's own and those of its peers."""
    shapes = {"context": (1, 3)}
    says = {"prompts": shapes, "again": {}, "want": {}}
    case = Case(Largest, AveragingConfig(wire_dtype=form), "sync", shapes, says)
    player = up(case.player())
    player.feed(RoundDue(1))
    assert player.tune is not None
    tuned = report_of(player.tune).tensors
    player.tuned()
    sent = player.sent[0].message
    for peer in PEERS:
        player.feed(Received(replace(sent, sender=peer)))
    player.wait_out()
    assert player.adopt is not None
    merged = player.adopt.snapshot.policy.tensors
    assert np.allclose(merged["context"], tuned["context"], atol=0.01)


@pytest.mark.parametrize(
    ("config", "mean"),
    [
        ({}, (1.0 * 10 + 4.0 * 30) / 40),
        ({"weights": "equal"}, 2.5),
    ],
)
def test_contributions_weigh_by_their_images(config: dict[str, Any], mean: float) -> None:
    merged = method(**config).merge(at(MethodState(START)), given((1.0, 10), (4.0, 30)))
    assert np.allclose(merged.shared["context"], mean)


def test_a_node_that_trained_nothing_has_no_weight() -> None:
    empty = Contribution("c", Tensors(), 1000)
    merged = method().merge(at(MethodState(START)), [*given((2.0, 8)), empty])
    assert merged.shared == row(2.0, 2.0, 2.0)


@pytest.mark.parametrize(("optimizer", "kept"), [("reset", {"private/x"}), ("keep", None)])
def test_a_merge_resets_the_momentum_and_keeps_private_tensors(
    optimizer: str, kept: set[str] | None
) -> None:
    carry = Tensors({"momentum/context": [1.0], "private/x": [2.0]})
    merged = method(optimizer=optimizer).merge(at(MethodState(START, carry)), given((2.0, 8)))
    assert set(merged.carry) == (set(carry) if kept is None else kept)


def test_a_node_uses_its_private_tensors_beside_the_merged_ones() -> None:
    state = MethodState(START, Tensors({"momentum/context": [1.0], "private/local": [2.0]}))
    used = method().used(state)
    assert set(used) == {"context", "local"}
    back = method().using(MethodState(row(0.0, 0.0, 0.0)), used)
    assert (back.shared, back.carry) == (START, Tensors({"private/local": [2.0]}))


@pytest.mark.parametrize("name", ["local", "private/local"])
def test_a_peer_cannot_send_a_private_prompt(name: str) -> None:
    node = frame("fedotp", peers=("b",), rounds=RoundSettings("sync", max=9))
    policy = FEDOTP.start(FedOTPConfig(), node, Tensors({"global": [[0.0, 0.0]]}))
    wrong = Tensors({"global": [[1.0, 1.0]], name: [[2.0, 2.0]]})
    assert f"{name} is [1, 2]" in policy.fault(node.message(1, "prompts", wrong))
    right = Tensors({"global": [[1.0, 1.0]]})
    assert policy.fault(node.message(1, "prompts", right)) == ""


def test_changes_need_equal_prompts_and_the_plain_mean_does_not() -> None:
    assert not method().drifts
    assert method(wire_dtype="int8").drifts


def test_papers_count_all_arrays_up_and_down() -> None:
    found = Averaging.paper_bytes(AveragingConfig(), {"context": (16, 512), "b": (3,)}, 10, 5)
    assert found == 10 * 5 * 2 * (16 * 512 + 3) * 4
