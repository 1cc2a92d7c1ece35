"""ZeroDFL's gate: a received row stays only where it costs the own validation loss little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fednode.core.events import Adopt, Adopted, PeerUp, Received, Record, RoundDue, Tune, Tuned
from fednode.core.rounds.gossip import Gossip
from fednode.core.types import MEASURE, Report, Tensors
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from tests.unit.core.scenes import PROMPTS, context, message, only

RECEIVED = Tensors({"context": [[9.0, 9.0], [8.0, 8.0]]})


def round_with(rise: float | None, losses: list[float], own: float = 1.0) -> Any:
    """Run a sync round, in which "b" sent two rows; return what was adopted and measured."""
    made = ZeroDFL.start(ZeroDFLConfig(admit_rise=rise), context(mode="sync", max=5), PROMPTS)
    made.handle(0.0, PeerUp("b"))
    (tune,) = only(made.handle(0.0, RoundDue(1)), Tune)
    made.handle(0.0, Received(message(tensors=RECEIVED)))
    metrics = {"loss": 0.5, "validation_loss": own}
    effects = made.handle(0.0, Tuned(tune.job, Report(tensors=PROMPTS, metrics=metrics, samples=8)))
    records: list[Record] = []
    measured = 0
    while only(effects, Tune):
        (tune,) = only(effects, Tune)
        assert tune.job.stage == MEASURE
        report = Report(
            tensors=tune.job.tensors, metrics={"validation_loss": losses[measured]}, samples=8
        )
        measured += 1
        effects = made.handle(0.0, Tuned(tune.job, report))
        records += only(effects, Record)
    (adopt,) = only(effects, Adopt)
    assert adopt.givers == (("b",) if (adopt.snapshot.policy.tensors != PROMPTS) else ())
    return adopt.snapshot.policy.tensors["context"], measured, records, adopt.snapshot.metrics


def test_what_makes_it_worse_stays_out_and_is_counted() -> None:
    rows, measured, records, metrics = round_with(0.1, [5.0, 1.05])
    assert measured == 2
    np.testing.assert_array_equal(rows[0], PROMPTS["context"][0])
    assert rows[1][0] in (8.0, 9.0)
    assert [one.text for one in records] == ["round 1: 1 received rows would have made it worse"]
    assert metrics == {"loss": 0.5, "validation_loss": 1.0}


def test_without_a_gate_nothing_is_measured() -> None:
    rows, measured, _, _ = round_with(None, [])
    assert measured == 0
    assert {float(one[0]) for one in rows} <= {8.0, 9.0}


def answered(made: Gossip, effects: Any, losses: list[float]) -> Any:
    """Answer measurements with these losses; return the other effects after them."""
    for loss in losses:
        (tune,) = only(effects, Tune)
        assert tune.job.stage == MEASURE
        report = Report(tensors=tune.job.tensors, metrics={"validation_loss": loss}, samples=8)
        effects = made.handle(0.0, Tuned(tune.job, report))
    return effects


@pytest.mark.parametrize("restarted", [False, True])
def test_in_async_rows_are_tried_before_the_tuning(restarted: bool) -> None:
    """Rows that arrive in a round are judged at the next one by the last tuning's loss."""
    config, surroundings = ZeroDFLConfig(admit_rise=0.1), context(max=5)
    made = ZeroDFL.start(config, surroundings, PROMPTS)
    made.handle(0.0, PeerUp("b"))
    (tune,) = only(made.handle(0.0, RoundDue(1)), Tune)
    made.handle(0.0, Received(message(tensors=RECEIVED)))
    report = Report(tensors=PROMPTS, metrics={"validation_loss": 1.0}, samples=8)
    (adopt,) = only(made.handle(0.0, Tuned(tune.job, report)), Adopt)
    assert adopt.snapshot.policy.tensors == PROMPTS
    made.handle(0.0, Adopted(adopt.snapshot))
    if restarted:
        made = ZeroDFL.restore(config, surroundings, adopt.snapshot.policy)
    effects = answered(made, made.handle(0.0, RoundDue(2)), [5.0, 1.05])
    (tune,) = only(effects, Tune)
    assert tune.job.stage == "prompts"
    rows = tune.job.tensors["context"]
    np.testing.assert_array_equal(rows[0], PROMPTS["context"][0])
    assert rows[1][0] in (8.0, 9.0)
    assert [one.text for one in only(effects, Record)] == [
        "round 2: 1 received rows would have made it worse"
    ]


def test_in_async_an_unknown_loss_is_measured_first() -> None:
    """Rows that arrive before the first round pass the gate, too."""
    made = ZeroDFL.start(ZeroDFLConfig(admit_rise=0.1), context(max=5), PROMPTS)
    made.handle(0.0, PeerUp("b"))
    made.handle(0.0, Received(message(tensors=RECEIVED)))
    effects = made.handle(0.0, RoundDue(1))
    (first,) = only(effects, Tune)
    assert first.job.tensors == PROMPTS
    (tune,) = only(answered(made, effects, [1.0, 9.0, 9.0]), Tune)
    assert tune.job.stage == "prompts"
    assert tune.job.tensors == PROMPTS


def test_all_refused_leaves_what_was_tuned() -> None:
    rows, _, _, _ = round_with(0.0, [5.0, 5.0])
    np.testing.assert_array_equal(rows, PROMPTS["context"])


def test_the_rise_is_not_negative() -> None:
    with pytest.raises(ValueError, match=r"policy\.admit_rise is -1"):
        ZeroDFLConfig(admit_rise=-1.0)
