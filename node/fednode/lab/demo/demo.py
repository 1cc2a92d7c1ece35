"""`fednode demo`: ZeroDFL and its control on the built-in images, and a table that tells.

Every figure comes from the daemons' own status RPC; this module starts meshes, waits, asks and
writes down. Both methods get the same images, steps, optimizer, initial prompts and seeds.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from fednode.core.types import ZERO_SHOT
from fednode.errors import ConfigError
from fednode.lab.demo import render, report
from fednode.learn.figures import mean
from fednode.settings import trees
from fednode.shipped import config_file
from fednode.terminal.stop import Interrupted, interruptible, until
from fednode.terminal.watch import View
from fednode.wire.gen.status_pb2 import Round, StatusReply
from fednode_bootstrap.local import shown
from fednode_bootstrap.mesh import POLL_S, LocalMesh, Member, MeshSettings, Observer
from fednode_bootstrap.process import PROGRAM

CONFIG: Final = config_file("demo/node.yaml")
OUT: Final = Path("runs") / "demo"
METHOD: Final = "zerodfl"
CONTROL: Final = "local"
NODES: Final = 5
SEEDS: Final = (1, 2, 3)
QUICK_ROUNDS: Final = 5
# A mesh that takes longer than this is named as hanging; on two idle cores one takes about 40 s.
MESH_TIMEOUT_S: Final = 1200.0
# Share of a mesh's time that its daemons need to come up, for the estimate of the time left.
STARTUP_SHARE: Final = 0.4
PACKAGES: Final = ("fednode", "torch", "open_clip_torch", "numpy", "grpcio")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What `fednode demo` was asked for.

    rounds: None for the configuration's. keep: keep the daemons' state directories and logs.
    settings: "section.key=value" for all daemons of both methods. module: the daemon's program.
    """

    out: Path = OUT
    config: Path = CONFIG
    seeds: tuple[int, ...] = SEEDS
    nodes: int = NODES
    rounds: int | None = None
    keep: bool = False
    quick: bool = False
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

    @property
    def seeds_run(self) -> tuple[int, ...]:
        """Return the seeds of this run: a quick one takes the first alone."""
        return self.seeds[:1] if self.quick else self.seeds

    @property
    def common(self) -> tuple[str, ...]:
        """Return what all meshes set on top of the configuration file."""
        rounds = QUICK_ROUNDS if self.quick and self.rounds is None else self.rounds
        limit = () if rounds is None else (f"rounds.max={rounds}",)
        return (*limit, *self.settings)

    def overrides(self, method: str, seed: int) -> tuple[str, ...]:
        """Return what one mesh sets on top of the configuration file."""
        # The control has none of the method's keys, so it takes the whole section's place.
        policy = f"policy.name={METHOD}" if method == METHOD else f"policy={{name: {method}}}"
        return (policy, f"seed={seed}", f"data.seed={seed}", *self.common)


@dataclass(slots=True)
class Clock:
    """How far the demo is, and about how long it still takes.

    total: meshes to run; done: meshes run.
    """

    total: int
    now: Callable[[], float] = time.monotonic
    done: int = 0
    begun: float = field(init=False)
    mesh: LocalMesh | None = None
    label: str = ""

    def __post_init__(self) -> None:
        self.begun = self.now()

    def fraction(self) -> float:
        """Return the share of the work that is done, 0 to 1."""
        return min(1.0, (self.done + self._of_mesh()) / self.total)

    def left_s(self) -> float | None:
        """Return about how many seconds are left; None while there is nothing to go by."""
        fraction = self.fraction()
        spent = self.now() - self.begun
        return None if fraction < 0.02 else spent * (1.0 - fraction) / fraction

    def headline(self) -> str:
        """Return one line: what runs, how far, how long still."""
        left = self.left_s()
        text = f"{self.label} ({self.done + 1} of {self.total}), {100 * self.fraction():.0f} %"
        return text if left is None else f"{text}, about {duration(left)} left"

    def _of_mesh(self) -> float:
        members = [] if self.mesh is None else list(self.mesh.members.values())
        return sum(map(_progress, members)) / len(members) if members else 0.0


def _progress(member: Member) -> float:
    status = member.status
    if status is None:
        return 0.0
    share = min(1.0, status.round / status.rounds_max) if status.rounds_max else 0.0
    return STARTUP_SHARE + (1.0 - STARTUP_SHARE) * share


def duration(seconds: float) -> str:
    """Return seconds for people."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


async def run(options: DemoOptions, observer: Observer, console: Console) -> int:
    """Run the demo, write its report and print it; return the exit code."""
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="meshes-", dir=options.out))
    try:
        with interruptible(console.print) as stop:
            found = await until(_meshes(options, observer, console, folder), stop)
    except Interrupted as stopped:
        console.print("The demo was interrupted; all daemons have ended and no report was written.")
        return stopped.exit_code
    finally:
        await observer.close()
        if options.keep:
            console.print(f"State and logs of all daemons are in {folder}", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for note in render.write(found, options.out):
        console.print(note)
    console.print(render.for_terminal(found))
    console.print(f"Written: {options.out}/report.md, report.json", highlight=False)
    return 0


async def _meshes(
    options: DemoOptions, observer: Observer, console: Console, folder: Path
) -> report.DemoReport:
    plan = [(method, seed) for method in (METHOD, CONTROL) for seed in options.seeds_run]
    clock = Clock(total=len(plan))
    started = datetime.now(UTC)
    outcomes: list[report.Outcome] = []
    remarks: list[str] = []
    statuses: dict[str, StatusReply] = {}
    for method, seed in plan:
        clock.label = f"{method}, seed {seed}"
        settings = MeshSettings(
            run_dir=folder / f"{method}-{seed}",
            nodes=options.nodes,
            config=options.config,
            settings=options.overrides(method, seed),
            name="demo",
            restarts=3,
            poll_s=options.poll_s,
            module=options.module,
        )
        mesh = clock.mesh = LocalMesh(settings, observer)
        async with shown(mesh, View(console, clock.headline)):
            names = await mesh.wait_finished(options.timeout_s)
            for name in names:
                statuses[name], history = await mesh.look(name), await mesh.history(name)
                outcomes.append(outcome(method, seed, statuses[name], history))
        clock.mesh = None
        clock.done += 1
        remarks += [f"{method}, seed {seed}: {text}." for text in mesh.events]
        remarks += missing(method, seed, set(mesh.members) - set(names))
        console.print(line(method, seed, outcomes))
    seconds = clock.now() - clock.begun
    about = facts(options, list(statuses.values()), started, seconds)
    return report.build(outcomes, METHOD, CONTROL, about, remarks)


def outcome(
    method: str, seed: int, status: StatusReply, history: Sequence[Round]
) -> report.Outcome:
    """Return what a node reported at the end, from its status and its history."""
    last = history[-1] if history else Round()
    evaluated = [one for one in history if any(name in one.metrics for name in report.METRICS)]
    return report.Outcome(
        method=method,
        seed=seed,
        node=status.name,
        metrics=accuracies(last.metrics),
        zero_shot=accuracies(status.metrics, ZERO_SHOT),
        rounds=last.round,
        payload_bytes=status.traffic.payload_out,
        serialized_bytes=status.traffic.serialized_out,
        wire_bytes=status.traffic.wire_out,
        points=tuple(
            report.Point(one.round, accuracies(one.metrics), one.traffic.payload_out)
            for one in evaluated
        ),
    )


def accuracies(metrics: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Return the accuracies among metrics by the name of the set."""
    return {name: metrics[prefix + name] for name in report.METRICS if prefix + name in metrics}


def missing(method: str, seed: int, names: set[str]) -> list[str]:
    """Return a sentence for each node without a result."""
    return [f"{method}, seed {seed}: {name} has no result." for name in sorted(names)]


def line(method: str, seed: int, outcomes: Sequence[report.Outcome]) -> str:
    """Return one line on a mesh that has just ended."""
    mine = [one for one in outcomes if (one.method, one.seed) == (method, seed)]
    figures = [
        f"{name} {render.percent(mean([one.metrics[name] for one in mine]))} %"
        for name in ("base", "new")
        if all(name in one.metrics for one in mine)
    ]
    sent = render.size(sum(one.payload_bytes for one in mine))
    return f"{method}, seed {seed}: {', '.join(figures) or 'no accuracies'}, {sent} sent"


def facts(
    options: DemoOptions, statuses: Sequence[StatusReply], started: datetime, seconds: float
) -> dict[str, Any]:
    """Return what was run, for the report."""
    first = statuses[0] if statuses else StatusReply()
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "title": f"{options.nodes} daemons on the built-in images",
        "command": " ".join(("fednode demo", *_flags(options))),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "nodes": options.nodes,
        "seeds": list(options.seeds_run),
        "methods": [CONTROL, METHOD],
        "model": first.model,
        "backbone": first.backbone,
        "rounds": first.rounds_max,
        "settings": trees.read(options.config.read_text("utf-8"))[1] or {},
        "settings_on_top": [*options.common, "tuning.threads=1"],
        "versions": versions,
        "machine": {"system": platform.platform(), "cpus": os.cpu_count()},
    }


def _flags(options: DemoOptions) -> list[str]:
    flags = [] if options.seeds == SEEDS else [f"--seeds {','.join(map(str, options.seeds))}"]
    flags += [] if options.rounds is None else [f"--rounds {options.rounds}"]
    flags += [] if options.nodes == NODES else [f"--nodes {options.nodes}"]
    flags += ["--quick"] if options.quick else []
    flags += [] if options.config == CONFIG else [f"--config {options.config}"]
    return flags + [f"--set {one}" for one in options.settings]
