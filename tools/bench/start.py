"""`python -m tools.bench.start`: how long a start takes, and what daemons take of the memory.

A start: from the process's first line to the end of its first tuning step, with an empty cache of
features and then with a full one. Memory: proportional (PSS) of daemons after their last round,
beside a process that only imports torch and open_clip.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click
import uvloop

from fednode.data.builtin import ASSETS, FOLDER
from fednode_bootstrap.mesh import LocalMesh, MeshSettings
from tools.bench.timer import Figure, as_json, show

PROGRAM: Final = """
import json, sys, time
begun = time.monotonic()
from fednode.clip.settings import ModelSettings
from fednode.core.types import Job
from fednode.data.base import DataSettings
from fednode.learn.build import build
from fednode.learn.coop import CoOp
from fednode.learn.settings import CacheSettings, TuningSettings
ready = time.monotonic()
folder, *classes = sys.argv[1:]
learner = build(
    ModelSettings(device="cpu"),
    DataSettings(classes=tuple(classes), shots=8),
    TuningSettings(threads=1),
    CacheSettings(folder=folder),
    CoOp,
    None,
)
built = time.monotonic()
steps = []
job = Job(round=1, stage="prompts", tensors=learner.initial(0), seed=1)
learner.tune(job, lambda: False, lambda progress: steps.append(time.monotonic()))
print(json.dumps({
    "imports, s": ready - begun,
    "model, s": built - ready,
    "features and step, s": steps[0] - built,
    "all, s": steps[0] - begun,
}))
"""
# Proportional memory, and of it what is the process's own, and mapped files.
FIGURES: Final = {"PSS, MB": "Pss", "own, MB": "Pss_Anon", "files, MB": "Pss_File"}
IMPORTS: Final = "import torch, open_clip; print(open('/proc/self/smaps_rollup').read())"


def starts(folder: Path, classes: int, warm: int) -> list[dict[str, Figure]]:
    """Return a row of the cold start, and one of the fastest of the warm ones."""
    names = sorted(one.name for one in (ASSETS / FOLDER).iterdir() if one.is_dir())[:classes]
    command = [sys.executable, "-c", PROGRAM, str(folder), *names]
    cold, *others = (json.loads(subprocess.check_output(command)) for _ in range(1 + warm))
    best = min(others, key=lambda one: float(one["all, s"]))
    return [{"start": "cold", **cold}, {"start": f"warm, best of {warm}", **best}]


def memory(folder: Path, nodes: int) -> list[dict[str, Figure]]:
    """Return rows of one daemon, of so many daemons, and of a process that only imports."""
    alone, many = (uvloop.run(_daemons(folder / str(count), count)) for count in (1, nodes))
    further = {key: (many[key] - alone[key]) / (nodes - 1) for key in FIGURES}
    imports = subprocess.check_output([sys.executable, "-c", IMPORTS], text=True)
    return [
        {"what": "1 daemon", **alone},
        {"what": f"{nodes} daemons, all", **many},
        {"what": "each further daemon", **further},
        {"what": "python, imports alone", **_megabytes(imports)},
    ]


async def _daemons(folder: Path, count: int) -> dict[str, float]:
    """Run a mesh until it is through; return its daemons' memory while they still serve."""
    policy = "policy.name=local" if count == 1 else "policy.name=zerodfl"
    settings = ("data.classes=[accordion,barrel]", "data.shots=2", "rounds.max=2", policy)
    async with LocalMesh(MeshSettings(run_dir=folder, nodes=count, settings=settings)) as mesh:
        await mesh.wait_finished(timeout_s=900)
        places = [Path(f"/proc/{one.daemon.pid}/smaps_rollup") for one in mesh.members.values()]
        found = [_megabytes(place.read_text(encoding="utf-8")) for place in places]
    return {key: sum(one[key] for one in found) for key in FIGURES}


def _megabytes(rollup: str) -> dict[str, float]:
    """Return a process's figures from what Linux says about its memory."""
    parts = [line.split() for line in rollup.splitlines() if line.endswith("kB")]
    found = {part[0].rstrip(":"): int(part[1]) * 1024 / 1e6 for part in parts}
    return {key: found[source] for key, source in FIGURES.items()}


@click.command()
@click.option("--classes", type=click.IntRange(2, 20), default=20, show_default=True)
@click.option("--warm", type=click.IntRange(min=1), default=3, show_default=True, help="Starts.")
@click.option("--nodes", type=click.IntRange(min=2), default=10, show_default=True)
@click.option("--daemons/--no-daemons", default=True, help="Measure daemons' memory (Linux).")
@as_json
def start(classes: int, warm: int, nodes: int, daemons: bool, as_json: bool) -> None:
    """Time a cold and a warm start with the embedded model, and weigh daemons."""
    with tempfile.TemporaryDirectory(prefix="fednode-bench-") as folder:
        rows = starts(Path(folder, "cache"), classes, warm)
        show("A start, to the end of the first tuning step", rows, as_json)
        if daemons:
            show("Memory", memory(Path(folder, "mesh"), nodes), as_json)


if __name__ == "__main__":
    start()
