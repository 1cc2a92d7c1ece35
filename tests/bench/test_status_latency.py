"""Does a node that tunes still answer? 1,000 status calls, beside the same node's idle ones.

The bar: p99 under 100 ms while it tunes. Printed, not asserted: time is a machine's.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from fednode.observe.client import Client
from fednode_bootstrap.mesh import LocalMesh, MeshSettings
from tests.bench.figures import publish

CALLS = 1000
BAR_MS = 100.0
# Many small steps and no end of rounds: it tunes practically all the time.
SETTINGS = (
    "policy.name=local",
    "rounds.max=0",
    "tuning.epochs=40",
    "tuning.batch_size=8",
    "rounds.start.timeout_s=1",
)


@pytest.mark.bench
async def test_status_latency_while_tuning(tmp_path: Path) -> None:
    settings = MeshSettings(run_dir=tmp_path, nodes=1, settings=SETTINGS)
    async with LocalMesh(settings, Client()) as mesh, Client(timeout_s=10.0) as client:
        member = mesh.members["node-1"]
        await mesh.wait_for(lambda: _phase(mesh) == "tuning", timeout_s=120)
        tuning, phases = await measure(client, member.address)
        await client.control(member.address, "pause")
        await mesh.wait_for(lambda: _phase(mesh) == "idle", timeout_s=120)
        idle, _ = await measure(client, member.address)
    rows = [row("tuning", tuning), row("idle", idle)]
    share = phases.count("tuning") / CALLS
    title = f"{CALLS} status calls in turn; tuning during {100 * share:.0f} % of the first row's"
    publish("status-latency", f"{title}; bar: p99 < {BAR_MS:.0f} ms while tuning", rows)
    assert share > 0.5, "the node was to be tuning while it was asked"


async def measure(client: Client, address: str) -> tuple[list[float], list[str]]:
    """Return milliseconds and the node's phase for each call."""
    times, phases = [], []
    for _ in range(CALLS):
        begun = time.perf_counter()
        reply = await client.status(address)
        times.append(1000 * (time.perf_counter() - begun))
        phases.append(reply.phase)
    return times, phases


def row(name: str, times: list[float]) -> dict[str, str | float]:
    """Return the figures of one series."""
    middle, high = np.quantile(times, (0.5, 0.99))
    return {"node": name, "p50 ms": middle, "p99 ms": high, "max ms": max(times)}


def _phase(mesh: LocalMesh) -> str:
    status = mesh.status()["node-1"]
    return "" if status is None else status.phase
