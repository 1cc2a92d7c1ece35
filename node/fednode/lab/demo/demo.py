"""`fednode mesh demo`: two methods and their control on the built-in images, and their table.

Every figure comes from the daemons' own status RPC; this module starts meshes, waits, asks and
writes down. All methods get the same images, steps and seeds; ZeroDFL and the control also get the
same optimizer and initial prompts.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import yaml
from rich.console import Console

from fednode.errors import ConfigError
from fednode.lab.demo import cells
from fednode.lab.demo.cells import CONTROL, METHOD, RECOMMENDED, SAME_HEAD
from fednode.lab.experiment import picture, report
from fednode.lab.experiment.cells import Done
from fednode.lab.experiment.settings import MethodSettings
from fednode.observe.client import Client
from fednode.settings import trees
from fednode.shipped import config_file
from fednode.terminal.stop import Interrupted, until_stopped
from fednode.units import duration
from fednode_bootstrap.daemon import PROGRAM
from fednode_bootstrap.mesh import POLL_S, LocalMesh, MeshSettings
from fednode_bootstrap.view import shown

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
        cell = cells.cell(method, seed, flags)
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
        result = cells.outcome(cell, said, warnings, time.monotonic() - began)
        ended.append(result)
        untuned.setdefault(seed, cells.zero_shot(seed, said, flags))
        line = f"{cell.title}: {result.summary}"
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return [*untuned.values(), *ended]


def _write(options: DemoOptions, done: Sequence[Done], console: Console) -> None:
    """Write the tables, and print the report."""
    tree = trees.read(options.config.read_text("utf-8"))[1] or {}
    rounds = max((result.outcome.get("rounds", 0) for result in done), default=0)
    made = cells.experiment(tree, options.nodes, options.seeds, rounds)
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
    console.print(cells.verdict(made, done), soft_wrap=True, highlight=False, markup=False)


def _flags(options: DemoOptions) -> list[str]:
    flags = [] if options.seeds == SEEDS else [f"--seeds {','.join(map(str, options.seeds))}"]
    flags += [] if options.rounds is None else [f"--rounds {options.rounds}"]
    flags += [] if options.nodes == NODES else [f"--nodes {options.nodes}"]
    flags += [] if options.config == CONFIG else [f"--config {options.config}"]
    return flags + [f"--set {setting}" for setting in options.settings]
