"""The number of shared rows that a node finds for itself: loss, budget, restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fednode.core.events import Adopt, Adopted, PeerUp, Received, RoundDue, Send, Tune, Tuned
from fednode.core.types import Report, Tensors
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.exchange import ZeroDFL
from tests.unit.policies.scenes import OWN, PEERS, node, said


def shares(policy: ZeroDFL, losses: list[float]) -> list[int]:
    """Run rounds with some validation losses; return how many rows each sent."""
    found: list[int] = []
    for loss in losses:
        number = policy.state().round + 1
        (tune,) = policy.handle(0.0, RoundDue(number))
        assert isinstance(tune, Tune)
        metrics = {"loss": 1.0, "validation_loss": loss}
        effects = policy.handle(
            0.0, Tuned(tune.job, Report(tensors=OWN, metrics=metrics, samples=8))
        )
        sent = {len(one.message.tensors["context"]) for one in effects if isinstance(one, Send)}
        assert len(sent) == 1
        found += sent
        for adopt in effects:
            if isinstance(adopt, Adopt):
                policy.handle(0.0, Adopted(adopt.snapshot))
    return found


def test_a_loss_that_rises_takes_a_row_back_and_one_that_falls_gives_one() -> None:
    policy = node(rows_shared="auto", recipients=2)
    assert shares(policy, [1.0, 1.2, 1.4, 1.3, 1.2, 1.2]) == [4, 3, 2, 3, 4, 4]
    assert shares(node(rows_shared="auto"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])[-1] == 1


@pytest.mark.parametrize(("budget", "rows"), [(0, 4), (32, 4), (31, 3), (8, 1), (1, 1)])
def test_a_budget_is_kept_but_for_one_row(budget: int, rows: int) -> None:
    """Two recipients, rows of two numbers in float16: 8 bytes a row."""
    policy = node(rows_shared="auto", recipients=2, bytes_per_round=budget)
    assert shares(policy, [1.0, 0.9, 0.8]) == [rows, rows, rows]


def test_rows_of_others_may_be_any_number_and_only_shared_rows_are_replaced() -> None:
    policy = node(rows_shared="auto", recipients=1, bytes_per_round=8)  # two rows
    for peer, count in (("b", 1), ("c", 4)):
        told = said(peer).message
        fewer = replace(told, tensors=Tensors({"context": told.tensors["context"][:count]}))
        assert policy.fault(fewer) == ""
        policy.handle(0.0, Received(fewer))
    wrong = Tensors({"context": [[1.0, 1.0]] * 5})
    assert "context[4, 2]" in policy.fault(replace(said("b").message, tensors=wrong))
    assert policy.fault(replace(said("b").message, tensors=Tensors()))
    (tune,) = policy.handle(0.0, RoundDue(1))
    assert isinstance(tune, Tune)
    first = tune.job.tensors["context"][:, 0].tolist()
    assert first[2:] == [2.0, 3.0]
    assert {int(x // 100) for x in first[:2]} == {1, 2}


def test_the_number_survives_a_restart() -> None:
    policy = node(rows_shared="auto", recipients=2)
    shares(policy, [1.0, 1.2])
    again = ZeroDFL.restore(policy._config, policy._context, policy.state())
    for peer in PEERS:
        again.handle(0.0, PeerUp(peer))
    assert again.state() == policy.state()
    assert shares(again, [1.3]) == shares(policy, [1.3]) == [2]


@pytest.mark.parametrize("set_", [{"bytes_per_round": -1}, {"rows_shared": -1}])
def test_what_makes_no_sense_is_refused(set_: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it must be at least 0"):
        ZeroDFLConfig(**set_)
