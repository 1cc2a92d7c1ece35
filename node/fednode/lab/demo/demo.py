"""`fednode mesh demo`: two methods and their control on the built-in images, and their table.

Every figure comes from the daemons' own status RPC; this module starts meshes, waits, asks, and
makes an experiment's cells of the replies. All methods get the same images, steps and seeds;
ZeroDFL and the control also get the same optimizer and initial prompts.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

from fednode import __version__
from fednode.clip.settings import ModelSettings
from fednode.core.types import ZERO_SHOT as UNTUNED
from fednode.errors import ConfigError
from fednode.lab.experiment import picture, report
from fednode.lab.experiment.cells import Cell, Done, Outcome
from fednode.lab.experiment.settings import (
    ZERO_SHOT,
    DataPart,
    Experiment,
    MethodSettings,
    ProtocolSettings,
)
from fednode.lab.experiment.table import differences, mean, rows
from fednode.observe.client import Client
from fednode.settings import trees
from fednode.settings.read import RECOMMENDED as POLICY
from fednode.shipped import config_file
from fednode.terminal.stop import Interrupted, until_stopped
from fednode.units import duration
from fednode.wire.gen.status_pb2 import Round, StatusReply
from fednode_bootstrap.daemon import PROGRAM
from fednode_bootstrap.mesh import POLL_S, LocalMesh, MeshSettings
from fednode_bootstrap.view import shown

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
CONFIG: Final = config_file("demo/node.yaml")
OUT: Final = Path("runs") / "demo"
NODES: Final = 5
METHODS: Final = (METHOD, RECOMMENDED, SAME_HEAD, CONTROL)
SEEDS: Final = (1, 2)
QUICK_ROUNDS: Final = 5
# A mesh that takes longer than this is named as hanging; on two idle cores one takes about 40 s.
MESH_TIMEOUT_S: Final = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What `fednode mesh demo` was asked for.

    rounds: None for the configuration's. keep: keep the daemons' state directories and logs.
    settings: "section.key=value" for all daemons of all methods. module: the daemon's program.
    """

    out: Path = OUT
    config: Path = CONFIG
    seeds: tuple[int, ...] = SEEDS
    nodes: int = NODES
    rounds: int | None = None
    keep: bool = False
    settings: tuple[str, ...] = ()
    timeout_s: float = MESH_TIMEOUT_S
    poll_s: float = POLL_S
    module: str = PROGRAM

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"--seeds {self.seeds}: give at least one seed, and none twice.")
        if not self.config.is_file():
            raise ConfigError(
                f"The demo's settings are not at '{self.config}': run it from a checkout of "
                "fednode, or give another node.yaml with --config."
            )

    def overrides(self, method: MethodSettings, seed: int) -> tuple[str, ...]:
        """Return what one mesh sets on top of the configuration file."""
        # The others have none of ZeroDFL's keys, so they take the whole section's place.
        section = yaml.safe_dump(dict(method.policy), default_flow_style=True).strip()
        policy = "policy.name=zerodfl" if method == METHOD else f"policy={section}"
        tuning = [f"tuning.{key}={value}" for key, value in method.tuning.items()]
        rounds = self.rounds if method.rounds is None else method.rounds
        limit = () if rounds is None else (f"rounds.max={rounds}",)
        seeds = (f"seed={seed}", f"data.seed={seed}")
        return (policy, *tuning, *seeds, *self.settings, *limit)


async def run(options: DemoOptions, client: Client | None, console: Console) -> int:
    """Run the demo, write its tables and print them; return the exit code.

    client: as LocalMesh takes it.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="meshes-", dir=options.out))
    try:
        done = await until_stopped(_meshes(options, client, console, folder), console.print)
    except Interrupted as stopped:
        console.print("The demo was interrupted; all daemons have ended and no report was written.")
        return stopped.exit_code
    finally:
        if options.keep:
            console.print(f"State and logs of all daemons are in {folder}", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    _write(options, done, console)
    return 0


async def _meshes(
    options: DemoOptions, client: Client | None, console: Console, folder: Path
) -> list[Done]:
    """Run a mesh for each method and seed; return the cells, in the order of the table."""
    plan = [(method, seed) for method in METHODS for seed in options.seeds]
    ended: list[Done] = []
    untuned: dict[int, Done] = {}
    first = time.monotonic()
    for method, seed in plan:
        flags = options.overrides(method, seed)
        cell = cell_of(method, seed, flags)
        settings = MeshSettings(
            run_dir=folder / f"{method.label.replace(', ', '-').replace(' ', '-')}-{seed}",
            nodes=options.nodes,
            config=options.config,
            settings=flags,
            name="demo",
            poll_s=options.poll_s,
            module=options.module,
        )
        mesh, began = LocalMesh(settings, client), time.monotonic()
        headline = f"{cell.title} ({len(ended) + 1} of {len(plan)})"
        if ended:
            left = (began - first) / len(ended) * (len(plan) - len(ended))
            headline += f", about {duration(left)} left"
        async with shown(mesh, console, partial(str, headline)):
            names = await mesh.wait_finished(options.timeout_s)
            said = {name: (await mesh.look(name), await mesh.history(name)) for name in names}
        silent = sorted(set(mesh.members) - set(names))
        warnings = [f"{text}." for text in mesh.events]
        warnings += [f"{name} has no result." for name in silent]
        result = outcome(cell, said, warnings, time.monotonic() - began)
        ended.append(result)
        untuned.setdefault(seed, zero_shot(seed, said, flags))
        line = f"{cell.title}: {result.summary}"
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return [*untuned.values(), *ended]


def _write(options: DemoOptions, done: Sequence[Done], console: Console) -> None:
    tree = trees.read(options.config.read_text("utf-8"))[1] or {}
    rounds = max((result.outcome.get("rounds", 0) for result in done), default=0)
    made = experiment(tree, options.nodes, options.seeds, rounds)
    notes = [
        f"{result.cell.title}: {text}"
        for result in done
        for text in result.outcome.get("warnings", ())
    ]
    command = " ".join(("fednode mesh demo", *_flags(options)))
    written = report.write(made, done, options.out, command, notes)
    console.print(written.read_text("utf-8"), soft_wrap=True, highlight=False, markup=False)
    try:
        picture.draw(picture.panels_of(done), options.out / "curves.png")
    except ConfigError as fault:
        console.print(f"curves.png was not drawn: {fault}")
    console.print(f"Written: {options.out}/report.md", highlight=False)
    console.print(verdict(made, done), soft_wrap=True, highlight=False, markup=False)


def _flags(options: DemoOptions) -> list[str]:
    flags = [] if options.seeds == SEEDS else [f"--seeds {','.join(map(str, options.seeds))}"]
    flags += [] if options.rounds is None else [f"--rounds {options.rounds}"]
    flags += [] if options.nodes == NODES else [f"--nodes {options.nodes}"]
    flags += [] if options.config == CONFIG else [f"--config {options.config}"]
    return flags + [f"--set {setting}" for setting in options.settings]


# From what the daemons said to the cells of an experiment


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


def cell_of(method: MethodSettings, seed: int, settings: Iterable[str]) -> Cell:
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
    written = cell_of(WRITTEN, seed, settings)
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
