"""Measure a local mesh of real daemons whose training costs nothing: pace, traffic and recovery."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fednode.bootstrap.mesh import LocalMesh, MeshSettings
from fednode.observe.client import Client
from fednode.wire.gen.status_pb2 import StatusReply

POLL_S: Final = 0.02
LIMIT_S: Final = 300.0
BEFORE: Final = 5
"""Rounds of every node before one is killed."""
PROMPT_BYTES: Final = 4 * 16 * 2
"""The numbers of one message with prompts: the closed-form learner's 4 x 16, in float16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One mesh; messages and bytes are those of all nodes together, for one round of each.

    round_s: seconds a round of the slowest node. control: messages without prompts. bytes: of
    frames with their gRPC and HTTP/2 framing, as the nodes' meters count them. recovery_s: from
    `kill -9` of a node to the second round that every other node adopts after it; None if it was
    not measured.
    """

    mode: str
    nodes: int
    tls: bool
    rounds: int
    round_s: float
    rounds_s: float
    prompts: float
    control: float
    bytes: float
    recovery_s: float | None


async def measure(
    folder: Path, mode: str, nodes: int, rounds: int, tls: bool, death: bool = True
) -> Row:
    """Run a mesh to its last round, and another one in which a node is killed."""
    settings = _settings(folder / "pace", mode, nodes, tls, f"rounds.max={rounds}")
    async with LocalMesh(settings, Client()) as mesh:
        await mesh.wait_for(lambda: all(one.round for one in known(mesh)), LIMIT_S)
        first, began = known(mesh), time.perf_counter()
        await mesh.wait_finished(LIMIT_S)
        seconds, last = time.perf_counter() - began, known(mesh)
    passed = rounds - min(one.round for one in first)
    all_passed = sum(rounds - one.round for one in first) / nodes
    sent, numbers, size = (
        sum(getattr(one.traffic, field) for one in last)
        - sum(getattr(one.traffic, field) for one in first)
        for field in ("messages_out", "payload_out", "wire_out")
    )
    return Row(
        mode=mode,
        nodes=nodes,
        tls=tls,
        rounds=min(one.round for one in last),
        round_s=seconds / max(1, passed),
        rounds_s=passed / seconds,
        prompts=numbers / PROMPT_BYTES / max(1, all_passed),
        control=(sent - numbers / PROMPT_BYTES) / max(1, all_passed),
        bytes=size / max(1, all_passed),
        recovery_s=await recovery(folder / "death", mode, nodes, tls) if death else None,
    )


async def recovery(folder: Path, mode: str, nodes: int, tls: bool) -> float:
    """Return the seconds from a death to the second round that every survivor adopted after it."""
    endless = ("rounds.max=0", "rounds.min_interval_s=0.1")
    async with LocalMesh(_settings(folder, mode, nodes, tls, *endless), Client()) as mesh:
        await mesh.wait_for(lambda: min(one.round for one in known(mesh)) >= BEFORE, LIMIT_S)
        victim, *left = reversed(mesh.members)
        mesh.kill(victim)
        began, before = time.perf_counter(), max(one.round for one in known(mesh))

        def on() -> bool:
            rounds = [status.round for name in left if (status := mesh.status()[name])]
            return min(rounds) >= before + 2

        await mesh.wait_for(on, LIMIT_S)
        return time.perf_counter() - began


def known(mesh: LocalMesh) -> list[StatusReply]:
    """Return what the nodes said; one that said nothing yet counts as at round 0."""
    return [one or StatusReply(name=name) for name, one in mesh.status().items()]


def _settings(folder: Path, mode: str, nodes: int, tls: bool, *more: str) -> MeshSettings:
    return MeshSettings(
        run_dir=folder,
        nodes=nodes,
        settings=("tuning.kind=closed-form", f"rounds.mode={mode}", *more),
        poll_s=POLL_S,
        tls=tls,
    )
