"""From what the daemons of a demo said to the cells of an experiment.

Pure: replies in, cells and sentences out. node/fednode/lab/experiment writes the tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fednode import __version__
from fednode.clip.settings import ModelSettings
from fednode.core.types import ZERO_SHOT as UNTUNED
from fednode.lab.experiment.cells import Cell, Done, Outcome
from fednode.lab.experiment.figures import difference, mean
from fednode.lab.experiment.settings import (
    ZERO_SHOT,
    DataPart,
    Experiment,
    MethodSettings,
    ProtocolSettings,
)
from fednode.wire.gen.status_pb2 import Round, StatusReply

TESTS: Final = ("base", "new", "own")
METHOD: Final = MethodSettings(label="zerodfl", policy={"name": "zerodfl"})
CONTROL: Final = MethodSettings(label="local", policy={"name": "local"})
WRITTEN: Final = MethodSettings(label=ZERO_SHOT, policy={"name": ZERO_SHOT})
Said = Mapping[str, tuple[StatusReply, Sequence[Round]]]
"""The last status of each node that has a result, and its rounds, oldest first."""


def experiment(
    tree: Mapping[str, Any], nodes: int, seeds: tuple[int, ...], rounds: int
) -> Experiment:
    """Return the experiment that a demo is; tree: of the nodes' settings."""
    data = tree.get("data", {})
    return Experiment(
        title=f"{nodes} daemons on the built-in images",
        data=DataPart(path=data.get("path", "builtin"), shots=data.get("shots", 16)),
        methods=(WRITTEN, CONTROL, METHOD),
        protocol=ProtocolSettings("base-to-new", clients=nodes),
        model=ModelSettings(**tree.get("model", {})),
        tuning=tree.get("tuning", {}),
        rounds=max(1, rounds),
        seeds=seeds,
    )


def cell(method: MethodSettings, seed: int, settings: Iterable[str]) -> Cell:
    """Return the cell of one mesh. settings: what its daemons set."""
    text = json.dumps([method.label, seed, *settings, __version__])
    return Cell(method, seed, "", hashlib.sha256(text.encode()).hexdigest()[:12])


def outcome(one: Cell, said: Said, warnings: Sequence[str], seconds: float) -> Done:
    """Return what the daemons of a mesh reported at its end, as an experiment's outcome.

    warnings: sentences on what went otherwise than planned.
    """
    if not said:
        return Done(one, {}, "no node has a result")
    statuses = [status for status, _ in said.values()]
    ends = {name: rounds[-1].metrics for name, (_, rounds) in said.items() if rounds}
    last = max((rounds[-1].round for _, rounds in said.values() if rounds), default=0)
    sent = {
        key: sum(getattr(node.traffic, f"{key}_out") for node in statuses)
        for key in ("messages", "payload", "serialized", "wire")
    }
    found: Outcome = {
        "method": one.method.label,
        "seed": one.seed,
        "target": one.target,
        "backbone": statuses[0].model,
        "fingerprint": statuses[0].backbone,
        "scores": _scores(ends),
        "curve": _curve(said),
        "loss": _losses(said, last),
        "bytes": {"all": sent},
        "nodes": len(said),
        "rounds": last,
        "warnings": list(warnings),
        "seconds": seconds,
    }
    return Done(one, found)


def zero_shot(seed: int, said: Said, settings: Iterable[str]) -> Done:
    """Return what the untuned model scored, which every node measures before its first round."""
    one = cell(WRITTEN, seed, settings)
    untuned = {
        name: {
            key.removeprefix(UNTUNED): value
            for key, value in status.metrics.items()
            if key.startswith(UNTUNED)
        }
        for name, (status, _) in said.items()
    }
    scores = _scores(untuned)
    if not scores:
        return Done(one, {}, "no node has a result")
    parts = {"method": ZERO_SHOT, "seed": seed, "target": "", "scores": scores, "seconds": 0.0}
    return Done(one, parts)


def _scores(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return accuracies (0..1) by test and node, from each node's figures."""
    found = {
        test: {name: held[test] for name, held in sorted(metrics.items()) if test in held}
        for test in TESTS
    }
    return {test: nodes for test, nodes in found.items() if nodes}


def _curve(said: Said) -> dict[str, dict[str, dict[str, float]]]:
    """Return the accuracies by round, test and node, of the rounds that measured any."""
    by_round: dict[int, dict[str, Mapping[str, float]]] = {}
    for name, (_, rounds) in said.items():
        for one in rounds:
            by_round.setdefault(one.round, {})[name] = one.metrics
    scored = ((number, _scores(metrics)) for number, metrics in sorted(by_round.items()))
    return {str(number): scores for number, scores in scored if scores}


def _losses(said: Said, last: int) -> list[float]:
    """Return the training loss of each round, mean over nodes; none if a round has no loss."""
    held: dict[int, list[float]] = {}
    for _, rounds in said.values():
        for one in rounds:
            if "loss" in one.metrics:
                held.setdefault(one.round, []).append(one.metrics["loss"])
    numbers = range(1, last + 1)
    return [mean(held[one]) for one in numbers] if all(one in held for one in numbers) else []


def differences(done: Sequence[Done], resamples: int = 10_000) -> list[str]:
    """Return a sentence for each test on the method minus its control, paired by seed and node."""
    said = []
    for test in TESTS:
        ours, theirs = (
            {
                (one.cell.seed, node): value
                for one in done
                if one.cell.method == method
                for node, value in one.outcome.get("scores", {}).get(test, {}).items()
            }
            for method in (METHOD, CONTROL)
        )
        found = difference(test, (METHOD.label, ours), (CONTROL.label, theirs), resamples)
        if found.pairs:
            said.append(
                f"{found.method} minus {found.control} on {test} classes: {100 * found.mean:+.1f} "
                f"points, 95 % interval {100 * found.low:+.1f} to {100 * found.high:+.1f}, better "
                f"in {found.wins} of {found.pairs} pairs of node and seed."
            )
    return said
