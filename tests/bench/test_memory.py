"""What ten daemons with ViT-B/16 take together: they map one file of weights.

The bar: proportional memory (PSS) of each further daemon below 400 MB. `import torch` alone is
measured beside it. Printed, not asserted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.mesh import Mesh, MeshSettings
from bootstrap.observe import RpcObserver
from tests.bench.figures import publish
from tests.bench.weights import MODEL, checkpoint

NODES = 10
IMPORTS = "import {}; print(open('/proc/self/smaps_rollup').read())"


@pytest.mark.bench
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_each_further_daemon_adds_its_own_pages_only(tmp_path: Path) -> None:
    weights = checkpoint(tmp_path)
    rows: list[dict[str, str | float]] = []
    totals = {}
    for count in (1, NODES):
        found = await measure(tmp_path / str(count), weights, count)
        totals[count] = sum(one["Pss"] for one in found)
        rows.append(row(f"{count} daemons, all", found, sum))
    rows.append(row(f"one of {NODES}, mean", found, lambda values: sum(values) / len(values)))
    further = (totals[NODES] - totals[1]) / (NODES - 1)
    rows.append({"memory, MB": "each further one", "PSS": further, "own": 0.0, "files": 0.0})
    modules = ("torch", "torch, open_clip")
    rows += [row(f"python, import {one}", [alone(one)], sum) for one in modules]
    publish("memory", f"{MODEL}, daemons after their last round", rows)
    assert all(one["Pss"] > 0 for one in found)


async def measure(folder: Path, weights: Path, count: int) -> list[dict[str, float]]:
    """Run a mesh until it is through; return every daemon's memory while it still serves."""
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
    async with Mesh(settings, RpcObserver()) as mesh:
        await mesh.wait_finished(timeout_s=900)
        pids = [one.daemon.pid for one in mesh.members.values()]
        return [memory(rollup(pid)) for pid in pids]


def rollup(pid: int | None) -> str:
    """Return what Linux says about a process's memory."""
    return Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")


def alone(modules: str) -> dict[str, float]:
    """Return the memory of a Python process that imports something and does nothing."""
    command = [sys.executable, "-c", IMPORTS.format(modules)]
    return memory(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def memory(text: str) -> dict[str, float]:
    """Return a process's figures in MB by name."""
    parts = [line.split() for line in text.splitlines() if line.endswith("kB")]
    return {part[0].rstrip(":"): int(part[1]) * 1024 / 1e6 for part in parts}


def row(name: str, found: list[dict[str, float]], merge: object) -> dict[str, str | float]:
    """Return a table's row: proportional memory, and of it what is the process's own, and files."""
    assert callable(merge)
    keys = {"PSS": "Pss", "own": "Pss_Anon", "files": "Pss_File"}
    return {
        "memory, MB": name,
        **{key: float(merge([one[source] for one in found])) for key, source in keys.items()},
    }
