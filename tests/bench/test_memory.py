"""What ten daemons with ViT-B/16 take together: they map one file of weights.

The bar: proportional memory (PSS) of each further daemon below 400 MB. `import torch` alone is
measured beside it. Printed, not asserted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fednode.observe.client import Client
from fednode_bootstrap.mesh import LocalMesh, MeshSettings
from tests.bench.figures import publish
from tests.bench.weights import MODEL, checkpoint

NODES = 10
# Proportional memory, and of it what is the process's own, and mapped files.
FIGURES = {"PSS": "Pss", "own": "Pss_Anon", "files": "Pss_File"}
IMPORTS = "import {}; print(open('/proc/self/smaps_rollup').read())"


@pytest.mark.bench
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_each_further_daemon_adds_its_own_pages_only(tmp_path: Path) -> None:
    weights = checkpoint(tmp_path)
    alone, many = [await measure(tmp_path / str(count), weights, count) for count in (1, NODES)]
    rows = {
        "1 daemon": alone,
        f"{NODES} daemons, all": many,
        f"one of {NODES}, mean": {key: value / NODES for key, value in many.items()},
        "each further one": {key: (many[key] - alone[key]) / (NODES - 1) for key in many},
        **{f"python, import {one}": imported(one) for one in ("torch", "torch, open_clip")},
    }
    shown: list[dict[str, str | float]] = [
        {"memory, MB": name, **figures} for name, figures in rows.items()
    ]
    publish("memory", f"{MODEL}, daemons after their last round", shown)
    assert many["PSS"] > alone["PSS"] > 0


async def measure(folder: Path, weights: Path, count: int) -> dict[str, float]:
    """Run a mesh until it is through; return its daemons' memory in all while they still serve."""
    settings = MeshSettings(
        run_dir=folder,
        nodes=count,
        settings=(
            f"model.name={MODEL}",
            f"model.pretrained={weights}",
            f"cache.folder={weights.parent / 'cache'}",
            "data.classes=[accordion,barrel]",
            "data.shots=2",
            "rounds.max=2",
            "policy.name=local" if count == 1 else "policy.name=zerodfl",
        ),
    )
    async with LocalMesh(settings, Client()) as mesh:
        await mesh.wait_finished(timeout_s=900)
        pids = [one.daemon.pid for one in mesh.members.values()]
        found = [memory(rollup(pid)) for pid in pids]
    return {key: sum(one[key] for one in found) for key in FIGURES}


def rollup(pid: int | None) -> str:
    """Return what Linux says about a process's memory."""
    return Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")


def imported(modules: str) -> dict[str, float]:
    """Return the memory of a Python process that imports something and does nothing."""
    command = [sys.executable, "-c", IMPORTS.format(modules)]
    return memory(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def memory(text: str) -> dict[str, float]:
    """Return a process's figures in MB."""
    parts = [line.split() for line in text.splitlines() if line.endswith("kB")]
    found = {part[0].rstrip(":"): int(part[1]) * 1024 / 1e6 for part in parts}
    return {key: found[source] for key, source in FIGURES.items()}
