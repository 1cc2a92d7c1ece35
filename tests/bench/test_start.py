"""How long a start takes: up to the first tuning step, and of a daemon as a fork or as a program.

First step: ViT-B/16, 20 classes with 8 images each, one thread, as a node on two cores has it. The
bar: with a warm cache the step is reached 20 times sooner than with a cold one. Daemons: the
embedded model and built-in images, until status requests are answered by a node that has loaded
both. Printed, not asserted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fednode.data.builtin import ASSETS, FOLDER
from fednode.observe.client import Client
from fednode_bootstrap import forks
from fednode_bootstrap.mesh import LocalMesh, MeshSettings
from tests.bench.figures import publish
from tests.bench.weights import MODEL, checkpoint

TURNS, DAEMONS = 2, 3
PROGRAM = """
import json, sys, time
begun = time.monotonic()
from fednode.clip.settings import ModelSettings
from fednode.core.types import Job
from fednode.data.base import DataSettings
from fednode.learn.build import build
from fednode.learn.context import ContextObjective
from fednode.learn.settings import CacheSettings, TuningSettings

ready = time.monotonic()
name, weights, folder, *classes = sys.argv[1:]
learner = build(
    ModelSettings(name=name, pretrained=weights, device="cpu"),
    DataSettings(classes=tuple(classes), shots=8),
    TuningSettings(threads=1),
    CacheSettings(folder=folder),
    ContextObjective,
    None,
)
built = time.monotonic()
steps = []
job = Job(1, "prompts", learner.initial(0), seed=1)
learner.tune(job, lambda: False, lambda progress: steps.append(time.monotonic()))
print(json.dumps({
    "images": learner.samples,
    "imports": ready - begun,
    "model": built - ready,
    "features, step": steps[0] - built,
    "all": steps[0] - begun,
}))
"""


@pytest.mark.bench
def test_a_warm_start_beside_a_cold_one(tmp_path: Path) -> None:
    weights, cache = checkpoint(tmp_path), tmp_path / "cache"
    cold, *warm = (run(weights, cache) for _ in range(4))
    best = min(warm, key=lambda one: one["all"])
    ratio: dict[str, str | float] = {"start": "ratio"}
    ratio.update({key: cold[key] / best[key] for key in cold})
    rows: list[dict[str, str | float]] = [
        {"start": "cold", **cold},
        {"start": "warm, best of 3", **best},
    ]
    rows.append(ratio)
    publish("start", f"{MODEL}, seconds to the end of the first tuning step", rows)
    assert cold["images"] == best["images"] == 160


def run(weights: Path, cache: Path) -> dict[str, float]:
    """Start a process; return its seconds by part."""
    classes = sorted(one.name for one in (ASSETS / FOLDER).iterdir() if one.is_dir())[:20]
    command = [sys.executable, "-c", PROGRAM, MODEL, str(weights), str(cache), *classes]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@pytest.mark.bench
@pytest.mark.skipif(not forks.SUPPORTED, reason="daemons are forks on Linux only")
async def test_daemons_as_forks_beside_programs(tmp_path: Path) -> None:
    rows: list[dict[str, str | float]] = []
    for turn in range(1, TURNS + 1):
        for forked, name in ((False, "programs"), (True, "forks")):
            figures = await serve(tmp_path / f"{turn}-{name}", forked)
            rows.append({"daemons": f"{name}, turn {turn}", **figures})
    # The forks of turn 1 also wait for their parent, which loads torch and the model.
    publish("forks", "fednode-mini, seconds until all daemons serve", rows)


async def serve(folder: Path, forked: bool) -> dict[str, float]:
    """Start a mesh, then one of its daemons again; return the seconds until all serve."""
    settings = MeshSettings(
        run_dir=folder,
        nodes=DAEMONS,
        settings=("policy.name=local", "rounds.max=1"),
        poll_s=0.02,
        forked=forked,
    )
    seconds: list[float] = []
    begun = time.monotonic()
    async with LocalMesh(settings, Client()) as mesh:
        members = mesh.members.values()
        await mesh.wait_for(lambda: all(one.answers and not one.starting for one in members), 300)
        seconds.append(time.monotonic() - begun)
        await mesh.wait_finished(timeout_s=300)  # one core a daemon: nothing else runs
        first = next(iter(members))
        await first.daemon.stop(settings.grace_s)
        begun = time.monotonic()
        await mesh.restart(first.name)
        await mesh.wait_for(lambda: first.answers and not first.starting, 300)
        seconds.append(time.monotonic() - begun)
    return dict(zip((f"{DAEMONS} at once", "one more"), seconds, strict=True))
