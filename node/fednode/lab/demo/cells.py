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
from fednode.lab.experiment.settings import (
    ZERO_SHOT,
    DataPart,
    Experiment,
    MethodSettings,
    ProtocolSettings,
)
from fednode.lab.experiment.table import differences, mean, rows
from fednode.settings.read import RECOMMENDED as POLICY
from fednode.wire.gen.status_pb2 import Round, StatusReply

SEEDS_ENOUGH: Final = 5
"""With fewer seeds the interval of a difference is a rough guide."""
TESTS: Final = ("base", "new", "own")
METHOD: Final = MethodSettings(label="zerodfl", policy={"name": "zerodfl"})
RECOMMENDED: Final = MethodSettings(label=POLICY, policy={"name": POLICY}, rounds=1)
"""What `fednode init` writes. Its later rounds send what is new, and the images of a demo stay as
they are."""
CONTROL: Final = MethodSettings(label="local", policy={"name": "local"})
SAME_HEAD: Final = MethodSettings(
    label=f"local, with {POLICY}'s classifier",
    policy={"name": "local", "head": POLICY},
    rounds=1,
)
"""The classifier of the recommended policy without peers, which tells what the peers bring."""
CONTROLS: Final = {METHOD.label: CONTROL.label, RECOMMENDED.label: SAME_HEAD.label}
"""The methods that exchange something, each with the control that exchanges nothing."""
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
        methods=(WRITTEN, CONTROL, METHOD, SAME_HEAD, RECOMMENDED),
        protocol=ProtocolSettings("base-to-new", clients=nodes),
        model=ModelSettings(**tree.get("model", {})),
        tuning=tree.get("tuning", {}),
        rounds=max(1, rounds),
        seeds=seeds,
        against=(CONTROL.label, SAME_HEAD.label),
    )


def cell(method: MethodSettings, seed: int, settings: Iterable[str]) -> Cell:
    """Return the cell of one mesh. settings: what its daemons set."""
    text = json.dumps([method.label, seed, *settings, __version__])
    return Cell(method, seed, "", hashlib.sha256(text.encode()).hexdigest()[:12])


def outcome(played: Cell, said: Said, warnings: Sequence[str], seconds: float) -> Done:
    """Return what the daemons of a mesh reported at its end, as an experiment's outcome.

    warnings: sentences on what went otherwise than planned.
    """
    if not said:
        return Done(played, {}, "no node has a result")
    statuses = [status for status, _ in said.values()]
    ends = {name: rounds[-1].metrics for name, (_, rounds) in said.items() if rounds}
    last = max((rounds[-1].round for _, rounds in said.values() if rounds), default=0)
    sent = {
        key: sum(getattr(node.traffic, f"{key}_out") for node in statuses)
        for key in ("messages", "payload", "serialized", "wire")
    }
    reported: Outcome = {
        "method": played.method.label,
        "seed": played.seed,
        "target": played.target,
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
    return Done(played, reported)


def zero_shot(seed: int, said: Said, settings: Iterable[str]) -> Done:
    """Return what the untuned model scored, which every node measures before its first round."""
    written = cell(WRITTEN, seed, settings)
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
        return Done(written, {}, "no node has a result")
    parts = {"method": ZERO_SHOT, "seed": seed, "target": "", "scores": scores, "seconds": 0.0}
    return Done(written, parts)


def _scores(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return accuracies (0..1) by test and node, from each node's figures."""
    by_test = {
        test: {name: held[test] for name, held in sorted(metrics.items()) if test in held}
        for test in TESTS
    }
    return {test: nodes for test, nodes in by_test.items() if nodes}


def _curve(said: Said) -> dict[str, dict[str, dict[str, float]]]:
    """Return the accuracies by round, test and node, of the rounds that measured any."""
    by_round: dict[int, dict[str, Mapping[str, float]]] = {}
    for name, (_, rounds) in said.items():
        for entry in rounds:
            by_round.setdefault(entry.round, {})[name] = entry.metrics
    scored = ((number, _scores(metrics)) for number, metrics in sorted(by_round.items()))
    return {str(number): scores for number, scores in scored if scores}


def _losses(said: Said, last: int) -> list[float]:
    """Return the training loss of each round, mean over nodes; none if a round has no loss."""
    by_round = [
        [
            entry.metrics["loss"]
            for _, rounds in said.values()
            for entry in rounds
            if entry.round == number and "loss" in entry.metrics
        ]
        for number in range(1, last + 1)
    ]
    return [mean(losses) for losses in by_round] if all(by_round) else []


def verdict(experiment: Experiment, done: Sequence[Done]) -> str:
    """Return one sentence for a newcomer: what the exchange brought on the classes of all nodes.

    Return "" if no method has a pair with its control.
    """
    found = [
        row
        for row in differences(experiment, done)
        if row.metric == "base" and CONTROLS.get(row.method) == row.control
    ]
    if not found:
        return ""
    best = max(found, key=lambda row: row.mean)
    low, high = 100 * best.low, 100 * best.high
    points = f"{100 * best.mean:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}"
    if best.mean <= 0:
        return (
            f"In short: the exchange does not help ({best.method} less {best.control}: {points})."
        )
    table = {row.method.label: row.figures for row in rows(experiment, done)}
    untuned, alone, together = (
        f"{table[label]['base'].mean:.1f}" for label in (ZERO_SHOT, best.control, best.method)
    )
    rough = (
        f" With {best.seeds} seed{'s' if best.seeds > 1 else ''} the interval is a rough guide: "
        "`fednode mesh demo --seeds 1,2,3,4,5` tells more."
    )
    return (
        "In short: each node has images of a few classes and is asked about the classes of all "
        f"nodes. Untuned it is right in {untuned} % of the test images, without peers "
        f"({best.control}) in {alone} %, and with what its peers send ({best.method}) in "
        f"{together} %. So its peers bring {points}"
        f"{'' if best.low > 0 else ' (it may be chance)'}, and no "
        f"image left its node.{rough if best.seeds < SEEDS_ENOUGH else ''}"
    )
