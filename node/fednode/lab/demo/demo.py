"""`fednode mesh demo`: two methods and their control on the built-in images, and their table.

Every figure comes from the daemons' own status RPC; this module starts meshes, waits, asks and
writes down. All methods get the same images, steps and seeds; ZeroDFL and the control also get the
same optimizer and initial prompts.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml
from rich.console import Console

from fednode.errors import ConfigError
from fednode.lab.demo import cells
from fednode.lab.demo.cells import CONTROL, METHOD, RECOMMENDED, SAME_HEAD
from fednode.lab.experiment import picture, report
from fednode.lab.experiment.cells import ELSEWHERE, Done, Job
from fednode.lab.experiment.figures import mean
from fednode.lab.experiment.settings import MethodSettings
from fednode.observe.client import Client
from fednode.settings import trees
from fednode.shipped import config_file
from fednode.storage.files import put
from fednode.terminal.stop import Interrupted, until_stopped
from fednode.units import scaled
from fednode_bootstrap.daemon import PROGRAM
from fednode_bootstrap.mesh import POLL_S, LocalMesh, Member, MeshSettings
from fednode_bootstrap.view import shown

CONFIG: Final = config_file("demo/node.yaml")
OUT: Final = Path("runs") / "demo"
NODES: Final = 5
METHODS: Final = (METHOD, RECOMMENDED, SAME_HEAD, CONTROL)
SEEDS: Final = (1, 2)
QUICK_ROUNDS: Final = 5
# A mesh that takes longer than this is named as hanging; on two idle cores one takes about 40 s.
MESH_TIMEOUT_S: Final = 1200.0
# Share of a mesh's time that its daemons need to come up, for the estimate of the time left.
STARTUP_SHARE: Final = 0.4


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

    def overrides(self, method: MethodSettings, seed: int) -> tuple[str, ...]:
        """Return what one mesh sets on top of the configuration file."""
        # The others have none of ZeroDFL's keys, so they take the whole section's place.
        section = yaml.safe_dump(dict(method.policy), default_flow_style=True).strip()
        policy = "policy.name=zerodfl" if method == METHOD else f"policy={section}"
        tuning = [f"tuning.{key}={value}" for key, value in method.tuning.items()]
        limit = () if method.rounds is None else (f"rounds.max={method.rounds}",)
        return (policy, *tuning, f"seed={seed}", f"data.seed={seed}", *self.common, *limit)


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
    plan = [(method, seed) for method in METHODS for seed in options.seeds_run]
    clock = Clock(total=len(plan))
    ended: list[Done] = []
    untuned: dict[int, Done] = {}
    for method, seed in plan:
        clock.label = f"{method.label}, seed {seed}"
        flags = options.overrides(method, seed)
        settings = MeshSettings(
            run_dir=folder / f"{method.label.replace(', ', '-').replace(' ', '-')}-{seed}",
            nodes=options.nodes,
            config=options.config,
            settings=flags,
            name="demo",
            poll_s=options.poll_s,
            module=options.module,
        )
        mesh = clock.mesh = LocalMesh(settings, client)
        began = clock.now()
        async with shown(mesh, console, clock.headline):
            names = await mesh.wait_finished(options.timeout_s)
            said = {name: (await mesh.look(name), await mesh.history(name)) for name in names}
        clock.mesh = None
        clock.done += 1
        silent = sorted(set(mesh.members) - set(names))
        warnings = [f"{text}." for text in mesh.events]
        warnings += [f"{name} has no result." for name in silent]
        result = cells.outcome(cells.cell(method, seed, flags), said, warnings, clock.now() - began)
        ended.append(result)
        untuned.setdefault(seed, cells.zero_shot(seed, said, flags))
        console.print(line(result), soft_wrap=True, highlight=False, markup=False)
    return [*untuned.values(), *ended]


def _write(options: DemoOptions, done: Sequence[Done], console: Console) -> None:
    """Write the cells and their tables, and print the report."""
    tree = trees.read(options.config.read_text("utf-8"))[1] or {}
    rounds = max((result.outcome.get("rounds", 0) for result in done), default=0)
    made = cells.experiment(tree, options.nodes, options.seeds_run, rounds)
    for result in done:
        if result.outcome:
            path = Job(made, result.cell, options.out).path
            path.parent.mkdir(exist_ok=True)
            put(path, json.dumps(result.outcome, indent=1), ELSEWHERE, for_all=True)
    notes = cells.differences(done)
    for result in done:
        said = result.outcome.get("warnings", ())
        notes += [f"{result.cell.title}: {text}" for text in said]
    command = " ".join(("fednode mesh demo", *_flags(options)))
    written = report.write(made, done, options.out, command, notes)
    console.print(written.read_text("utf-8"), soft_wrap=True, highlight=False, markup=False)
    try:
        picture.draw(picture.panels_of(done), options.out / "curves.png")
    except ConfigError as fault:
        console.print(f"curves.png was not drawn: {fault}")
    console.print(f"Written: {options.out}/report.md", highlight=False)
    console.print(cells.verdict(done), soft_wrap=True, highlight=False, markup=False)


def line(done: Done) -> str:
    """Return one line on a mesh that has just ended."""
    if done.fault:
        return f"{done.cell.title}: {done.fault}"
    scores = done.outcome["scores"]
    shown = [f"{test} {100 * mean(list(nodes.values())):.1f} %" for test, nodes in scores.items()]
    sent = scaled(done.outcome["bytes"]["all"]["payload"], 1024, ("B", "KiB", "MiB"))
    return f"{done.cell.title}: {', '.join(shown) or 'no accuracies'}, {sent} sent"


def _flags(options: DemoOptions) -> list[str]:
    flags = [] if options.seeds == SEEDS else [f"--seeds {','.join(map(str, options.seeds))}"]
    flags += [] if options.rounds is None else [f"--rounds {options.rounds}"]
    flags += [] if options.nodes == NODES else [f"--nodes {options.nodes}"]
    flags += ["--quick"] if options.quick else []
    flags += [] if options.config == CONFIG else [f"--config {options.config}"]
    return flags + [f"--set {setting}" for setting in options.settings]
