"""`python -m tools.bench.mesh`: pace, traffic and recovery of real daemons that train nothing.

A death is measured twice: of a node that trains nothing, and of a node that is killed while it
tunes, in a mesh whose nodes all tune for TUNING_S.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import uvloop

from fednode.core.merge.numbers import ITEM_BYTES
from fednode.learn.quadratic import STEPS
from fednode.wire.gen.status_pb2 import StatusReply
from fednode_bootstrap.mesh import LocalMesh, MeshError, MeshSettings
from tools.bench.timer import Figure, as_json, show

MODES: Final = ("async", "sync")
POLL_S: Final = 0.02
"""Seconds between two questions to each node, where a death is measured."""
PACE_POLL_S: Final = 0.2
"""The same where the pace is measured: 50 questions a second took a tenth of the machine."""
LIMIT_S: Final = 300.0
BEFORE: Final = 5
"""Rounds of every node before one is killed."""
TUNING_S: Final = 1.0
"""Time that a node tunes in a round, where a node is killed while it tunes."""
ROWS: Final = 4
PROMPT_BYTES: Final = ROWS * 16 * ITEM_BYTES["float16"]
"""Of a message. A row of the closed-form learner's prompts has 16 numbers."""
SETTINGS: Final = (
    "tuning.kind=closed-form",
    f"tuning.context_length={ROWS}",
    "policy.name=zerodfl",
    "policy.wire_dtype=float16",
    "rounds.max=0",
)
"""Of every daemon. None has a last round: daemons that train nothing would be through with a short
run before they are asked for the first time, and nothing would be left to count."""
NOTE: Final = (
    "Messages and bytes are of all nodes, a round; control: all but prompts. bytes: frames with\n"
    "their gRPC and HTTP/2 framing. recovery: from `kill -9` of a node to the second round that\n"
    "all others adopt after it, with at least 0.1 s between rounds. tuning: to the next round,\n"
    "if the node is killed while all tune."
)


async def measure(
    folder: Path, mode: str, nodes: int, rounds: int, tls: bool, death: bool = True
) -> dict[str, Figure]:
    """Let a mesh pass `rounds` rounds at least, and kill a node of another one."""
    async with _mesh(folder / "pace", mode, nodes, tls, poll_s=PACE_POLL_S) as mesh:
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
    return {
        "mode": mode,
        "nodes": nodes,
        "TLS": tls,
        "rounds": slowest,
        "round, s": seconds / slowest,
        "prompts": numbers / PROMPT_BYTES / mean,
        "control": (sent - numbers / PROMPT_BYTES) / mean,
        "bytes": wire / mean,
        "recovery, s": await recovery(folder / "death", mode, nodes, tls) if death else None,
        "tuning, s": (
            await recovery(folder / "tuning", mode, nodes, tls, TUNING_S, 2) if death else None
        ),
    }


async def recovery(
    folder: Path, mode: str, nodes: int, tls: bool, tuning_s: float = 0.0, before: int = BEFORE
) -> float:
    """Return the seconds from a death to the second round that every survivor adopted after it.

    before: rounds of every node before the death. tuning_s: time that every node tunes in a round;
    if it is given, a node is killed in the first half of a tuning, as its status says, and the
    survivors' next round counts.
    """
    pace = f"tuning.step_s={tuning_s / STEPS}" if tuning_s else "rounds.min_interval_s=0.1"
    async with _mesh(folder, mode, nodes, tls, pace) as mesh:
        victim, *left = reversed(mesh.members)
        await _wait_for(mesh, lambda: min(status.round for status in known(mesh)) >= before)
        if tuning_s:
            await _wait_for(mesh, lambda: 0 < known(mesh)[-1].step <= STEPS // 2)
        mesh.kill(victim)
        began = time.perf_counter()
        await mesh.members[victim].daemon.ended()
        more = 1 if tuning_s else 2
        goals = {name: (await mesh.look(name)).round + more for name in left}
        await _wait_for(mesh, lambda: all(mesh.members[name].round >= goals[name] for name in left))
        return time.perf_counter() - began


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
    return [member.status or StatusReply(name=member.name) for member in mesh.members.values()]


def _mesh(
    folder: Path, mode: str, nodes: int, tls: bool, *more: str, poll_s: float = POLL_S
) -> LocalMesh:
    settings = (*SETTINGS, f"rounds.mode={mode}", *more)
    shared = MeshSettings(run_dir=folder, nodes=nodes, settings=settings, poll_s=poll_s, tls=tls)
    return LocalMesh(shared)


@click.command()
@click.option("--nodes", type=click.IntRange(2, 64), multiple=True, help="Daemons (4).")
@click.option("--mode", type=click.Choice(MODES), multiple=True, help="Of rounds (both).")
@click.option("--rounds", type=click.IntRange(min=2), default=200, show_default=True)
@click.option("--tls", is_flag=True, help="Give every node a key; mutual TLS between them.")
@click.option("--death/--no-death", default=True, show_default=True, help="Measure recovery.")
@as_json
def mesh(
    nodes: tuple[int, ...],
    mode: tuple[str, ...],
    rounds: int,
    tls: bool,
    death: bool,
    as_json: bool,
) -> None:
    """Measure a local mesh of daemons; a round costs only what fednode itself does."""
    rows = []
    for kind in mode or MODES:
        for count in nodes or (4,):
            click.echo(f"{kind}, {count} nodes", err=True)
            with tempfile.TemporaryDirectory(prefix="fednode-bench-") as folder:
                rows.append(uvloop.run(measure(Path(folder), kind, count, rounds, tls, death)))
    show("Daemons on this machine, closed-form learner", rows, as_json, NOTE)


if __name__ == "__main__":
    mesh()
