"""From replies to cells: each figure against an independent computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fednode.lab.demo import cells
from fednode.lab.demo.cells import CONTROL, METHOD, RECOMMENDED, SAME_HEAD
from fednode.lab.experiment.cells import Done
from fednode.lab.experiment.settings import MethodSettings
from fednode.wire.gen.status_pb2 import Round, StatusReply, Traffic


def node(name: str, new: float, sent: int = 0) -> tuple[StatusReply, Sequence[Round]]:
    """Return a node of three rounds, of which the first measures no accuracy."""
    traffic = Traffic(messages_out=3, payload_out=sent, serialized_out=2 * sent, wire_out=3 * sent)
    metrics = {"zero_shot_new": 0.3, "zero_shot_base": 0.4, "new": new, "loss": 0.5}
    rounds = [
        Round(round=1, metrics={"loss": 2.0}),
        Round(round=2, metrics={"loss": 1.0, "new": new / 2}),
        Round(round=3, metrics={"loss": 0.5, "new": new, "base": 0.6, "validation": 0.1}),
    ]
    status = StatusReply(name=name, model="mini", metrics=metrics, traffic=traffic)
    return status, rounds


def test_an_outcome_has_the_last_round_the_curve_losses_and_bytes() -> None:
    said = {"b": node("b", 0.4, 10), "a": node("a", 0.2, 30)}
    one = cells.cell(METHOD, 3, ("tuning.lr=1",))
    found = cells.outcome(one, said, ["a was slow."], 7.0).outcome
    assert found["scores"] == {"base": {"a": 0.6, "b": 0.6}, "new": {"a": 0.2, "b": 0.4}}
    assert found["curve"] == {"2": {"new": {"a": 0.1, "b": 0.2}}, "3": found["scores"]}
    assert found["loss"] == [2.0, 1.0, 0.5]
    sent = {"messages": 6, "payload": 40, "serialized": 80, "wire": 120}
    assert found["bytes"] == {"all": sent}
    assert (found["method"], found["seed"], found["rounds"], found["nodes"]) == ("zerodfl", 3, 3, 2)
    assert (found["warnings"], found["seconds"]) == (["a was slow."], 7.0)
    status, rounds = said["a"]
    found = cells.outcome(one, {"a": (status, rounds[1:])}, [], 1.0).outcome
    assert found["loss"] == [], "a round has no loss"


def test_zero_shot_is_measured_once_for_each_node() -> None:
    found = cells.zero_shot(2, {"a": node("a", 0.9)}, ())
    assert found.outcome["scores"] == {"base": {"a": 0.4}, "new": {"a": 0.3}}
    assert found.cell.method.label == "zero-shot"
    assert cells.zero_shot(2, {}, ()).fault == "no node has a result"


def test_a_cell_s_key_changes_with_its_settings() -> None:
    first = cells.cell(METHOD, 1, ("tuning.lr=1",))
    assert first == cells.cell(METHOD, 1, ("tuning.lr=1",))
    others = [
        cells.cell(CONTROL, 1, ("tuning.lr=1",)),
        cells.cell(METHOD, 2, ("tuning.lr=1",)),
        cells.cell(METHOD, 1, ("tuning.lr=2",)),
    ]
    assert len({first.file, *(one.file for one in others)}) == 4


def with_base(method: MethodSettings, base: Sequence[float]) -> list[Done]:
    """Return a cell for each seed, whose two nodes have this accuracy on base classes."""
    scores = ({"base": {"a": value, "b": value + 0.02}} for value in base)
    return [
        Done(cells.cell(method, seed, ()), {"scores": one, "seconds": 1.0})
        for seed, one in enumerate(scores, 1)
    ]


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        (
            (0.60, 0.62),
            "Untuned it is right in 31.0 % of the test images, without peers (local, with gda's "
            f"classifier) in 51.0 %, and with what its peers send ({RECOMMENDED.label}) in 62.0 %. "
            "So its peers bring +11.0 points, 95 % interval +10.0 to +12.0, and no image left its "
            "node. With 2 seeds the interval is a rough guide",
        ),
        (
            (0.49, 0.53),
            "So its peers bring +1.0 points, 95 % interval -1.0 to +3.0 (it may be chance), and",
        ),
        (
            (0.49, 0.49),
            f"In short: the exchange does not help ({RECOMMENDED.label} less local, with gda's "
            "classifier: -1.0 points, 95 % interval -1.0 to -1.0).",
        ),
    ],
)
def test_the_last_sentence_says_what_peers_bring(ours: Sequence[float], said: str) -> None:
    made = cells.experiment({}, 2, (1, 2), 50)
    control = [*with_base(CONTROL, (0.5, 0.5)), *with_base(SAME_HEAD, (0.5, 0.5))]
    done = [
        *with_base(METHOD, (0.4, 0.4)),
        *with_base(RECOMMENDED, ours),
        *with_base(cells.WRITTEN, (0.3, 0.3)),
    ]
    assert said in cells.verdict(made, [*done, *control])
    assert cells.verdict(made, done) == ""
    seeds = [
        replace(one, cell=replace(one.cell, seed=at)) for at in range(5) for one in done + control
    ]
    assert "rough guide" not in cells.verdict(replace(made, seeds=tuple(range(5))), seeds)
