"""Measure a local mesh of real daemons whose training costs nothing: pace, traffic and recovery.

A death is measured twice: of a node that trains nothing, and of a node that is killed while it
tunes, in a mesh whose nodes all tune for TUNING_S.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fednode.core.merge.numbers import ITEM_BYTES
from fednode.learn.closed_form import STEPS
from fednode.wire.gen.status_pb2 import StatusReply
from fednode_bootstrap.local import client_for
from fednode_bootstrap.mesh import LocalMesh, MeshError, MeshSettings

POLL_S: Final = 0.02
"""Seconds between two questions to each node, where a death is measured."""
PACE_POLL_S: Final = 0.2
"""The same where the pace is measured: 50 questions a second took a tenth of the machine."""
LIMIT_S: Final = 300.0
BEFORE: Final = 5
"""Rounds of every node before one is killed."""
TUNING_S: Final = 1.0
"""Time that a node tunes in a round, where a node is killed while it tunes."""
WIDTH: Final = 16
"""Numbers in a row of the closed-form learner's prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompts of one message: rows of 16 numbers, in a type of ITEM_BYTES."""

    rows: int = 4
    dtype: str = "float16"
    policy: str = "zerodfl"

    @property
    def bytes(self) -> int:
        """The bytes of the numbers alone."""
        return self.rows * WIDTH * ITEM_BYTES[self.dtype]

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings of a node that exchanges such prompts."""
        return (
            f"policy.name={self.policy}",
            f"tuning.context_length={self.rows}",
            f"policy.wire_dtype={self.dtype}",
        )


SMALL: Final = Prompts()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshRow:
    """One mesh; messages and bytes are those of all nodes together, for one round of each.

    rounds: how many of the slowest node were counted. round_s: seconds a round of the slowest
    node. control: messages without prompts. bytes: of frames with their gRPC and HTTP/2 framing,
    as the nodes' meters count them. recovery_s: from `kill -9` of a node to the second round that
    every other node adopts after it; None if it was not measured. tuning_recovery_s: from
    `kill -9` of a node that tunes to the next round that every other node adopts.
    """

    mode: str
    nodes: int
    tls: bool
    rounds: int
    round_s: float
    prompts: float
    control: float
    bytes: float
    recovery_s: float | None
    tuning_recovery_s: float | None


async def measure(
    folder: Path,
    mode: str,
    nodes: int,
    rounds: int,
    tls: bool,
    death: bool = True,
    prompts: Prompts = SMALL,
) -> MeshRow:
    """Let a mesh pass `rounds` rounds at least, and kill a node of another one.

    The daemons themselves have no last round: those that train nothing would be through with a
    short run before they are asked for the first time, and nothing would be left to count.
    """
    endless = ("rounds.max=0", *prompts.settings)
    async with _mesh(folder / "pace", mode, nodes, tls, *endless, poll_s=PACE_POLL_S) as mesh:
        await _wait_for(mesh, lambda: all(status.round for status in known(mesh)))
        first, began = known(mesh), time.perf_counter()
        await _wait_for(mesh, lambda: min(_passed(first, known(mesh))) >= rounds)
        last, seconds = known(mesh), time.perf_counter() - began
    passed = _passed(first, last)
    slowest, mean = min(passed), sum(passed) / nodes
    sent, numbers, wire = (
        sum(getattr(status.traffic, field) for status in last)
        - sum(getattr(status.traffic, field) for status in first)
        for field in ("messages_out", "payload_out", "wire_out")
    )
    return MeshRow(
        mode=mode,
        nodes=nodes,
        tls=tls,
        rounds=slowest,
        round_s=seconds / slowest,
        prompts=numbers / prompts.bytes / mean,
        control=(sent - numbers / prompts.bytes) / mean,
        bytes=wire / mean,
        recovery_s=await recovery(folder / "death", mode, nodes, tls, prompts) if death else None,
        tuning_recovery_s=(
            await tuning_recovery(folder / "tuning", mode, nodes, tls, prompts) if death else None
        ),
    )


async def recovery(
    folder: Path, mode: str, nodes: int, tls: bool, prompts: Prompts = SMALL
) -> float:
    """Return the seconds from a death to the second round that every survivor adopted after it."""
    endless = ("rounds.max=0", "rounds.min_interval_s=0.1", *prompts.settings)
    async with _mesh(folder, mode, nodes, tls, *endless) as mesh:
        await _wait_for(mesh, lambda: min(status.round for status in known(mesh)) >= BEFORE)
        victim, *left = reversed(mesh.members)
        mesh.kill(victim)
        began, before = time.perf_counter(), max(status.round for status in known(mesh))

        def on() -> bool:
            rounds = [status.round for name in left if (status := mesh.status()[name])]
            return min(rounds) >= before + 2

        await _wait_for(mesh, on)
        return time.perf_counter() - began


async def tuning_recovery(
    folder: Path,
    mode: str,
    nodes: int,
    tls: bool,
    prompts: Prompts = SMALL,
    tuning_s: float = TUNING_S,
    before: int = 2,
) -> float:
    """Return the seconds from the death of a tuning node to the survivors' next adopted round.

    tuning_s: time that every node tunes in a round. before: rounds of every node before the death.
    The node is killed in the first half of a tuning, as its status says.
    """
    endless = ("rounds.max=0", f"tuning.step_s={tuning_s / STEPS}", *prompts.settings)
    async with _mesh(folder, mode, nodes, tls, *endless) as mesh:
        victim, *left = reversed(mesh.members)
        await _wait_for(mesh, lambda: min(status.round for status in known(mesh)) >= before)
        await _wait_for(mesh, lambda: 0 < _step(mesh, victim) <= STEPS // 2)
        mesh.kill(victim)
        began = time.perf_counter()
        await mesh.members[victim].daemon.ended()
        reached = {name: (await mesh.look(name)).round for name in left}

        def on() -> bool:
            rounds = {name: status.round for name in left if (status := mesh.status()[name])}
            return all(rounds[name] > reached[name] for name in left)

        await _wait_for(mesh, on)
        return time.perf_counter() - began


def _step(mesh: LocalMesh, name: str) -> int:
    """Return the step at which a node's tuning stands; 0 if it does not tune."""
    status = mesh.status()[name]
    return status.step if status is not None else 0


async def _wait_for(mesh: LocalMesh, condition: Callable[[], bool]) -> None:
    try:
        await mesh.wait_for(condition, LIMIT_S)
    except TimeoutError:
        rounds = ", ".join(f"{status.name} in round {status.round}" for status in known(mesh))
        raise MeshError(
            f"The mesh did not get on within {LIMIT_S:.0f} s and stands at {rounds}; "
            "a machine with fewer other programs or fewer --nodes may do."
        ) from None


def _passed(first: list[StatusReply], last: list[StatusReply]) -> list[int]:
    """Return the rounds that each node adopted from one answer to the next."""
    return [after.round - before.round for before, after in zip(first, last, strict=True)]


def known(mesh: LocalMesh) -> list[StatusReply]:
    """Return what the nodes said; one that said nothing yet counts as at round 0."""
    return [status or StatusReply(name=name) for name, status in mesh.status().items()]


@asynccontextmanager
async def _mesh(
    folder: Path, mode: str, nodes: int, tls: bool, *more: str, poll_s: float = POLL_S
) -> AsyncIterator[LocalMesh]:
    settings = MeshSettings(
        run_dir=folder,
        nodes=nodes,
        settings=("tuning.kind=closed-form", f"rounds.mode={mode}", *more),
        poll_s=poll_s,
        tls=tls,
    )
    client = client_for(folder, tls)
    try:
        async with LocalMesh(settings, client) as mesh:
            yield mesh
    finally:
        await client.close()
