"""A node as a run in a tracker: read its history over the network, and write each round once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fednode.app.reach import Make
from fednode.core.types import SPLITS, ZERO_SHOT
from fednode.errors import ConfigError, Unreachable
from fednode.lab.track.base import Plain, Run
from fednode.lab.track.trackers import Shipped
from fednode.lab.track.writing import Patient, Say, Writer
from fednode.observe.client import Client
from fednode.wire.gen import status_pb2

POLL_S: Final = 2.0
"""Seconds between two questions to a node that runs."""
OUT: Final = Path("runs") / "track"
"""Folder of the trackers' files, a folder for each mesh."""
COUNTERS: Final = tuple(field.name for field in status_pb2.Traffic.DESCRIPTOR.fields)


async def track(
    make: Make,
    address: str,
    tracker: Shipped,
    patient: Patient,
    say: Say,
    *,
    name: str | None = None,
    folder: Path | None = None,
    once: bool = False,
    poll_s: float = POLL_S,
) -> None:
    """Write the rounds that the node at an address holds, then new rounds until its last one.

    name, folder: of the run; None for the node's name and a folder of its mesh. once: write what
    the node holds now, and end. Raise Unreachable if the node does not answer at first.
    """
    async with make() as client:
        status = await client.status(address)
        run = run_of(status, name, folder)
        async with Writer(tracker, patient, run) as writer:
            say(writer.where)
            await _follow(client, address, status, writer, say, once, poll_s)
        say(f"The run {run.name!r} has the rounds until {max(0, writer.note.last)}.")


async def _follow(
    client: Client,
    address: str,
    status: status_pb2.StatusReply,
    writer: Writer,
    say: Say,
    once: bool,
    poll_s: float,
) -> None:
    silent = False
    while True:
        try:
            await _write(client, address, status.name, writer, say)
            if once or status.life == "finished":
                return
            await asyncio.sleep(poll_s)
            status = await client.status(address)
        except Unreachable as fault:
            if once or writer.broken:
                raise
            if not silent:
                say(f"{fault} Still following; Ctrl-C ends it.")
            silent = True
            await asyncio.sleep(poll_s)
        else:
            silent = False


async def _write(client: Client, address: str, name: str, writer: Writer, say: Say) -> None:
    """Write the rounds that the tracker does not have yet."""
    last = max(0, writer.note.last)
    rounds = await client.history(address, last)  # the last one again, to compare it
    again = rounds[0] if rounds else status_pb2.Round(round=last)
    if last and again.round == last and again.digest != writer.note.digest:
        raise ConfigError(
            f"{name!r} does not hold the round {last} that the run holds: the node was reset, or "
            f"it recovered from damage. Begin another run: --run {name}-2, say."
        )
    first = next((entry.round for entry in rounds if entry.round > last), None)
    if first is not None and first > last + 1:
        say(
            f"{name!r} holds no rounds before {first}, so the rounds from {last + 1} to "
            f"{first - 1} are not written."
        )
    for entry in rounds:
        traffic = {key: getattr(entry.traffic, key) for key in COUNTERS}
        await writer.log(entry.round, figures(entry.metrics, traffic), entry.digest)


def run_of(status: status_pb2.StatusReply, name: str | None, folder: Path | None) -> Run:
    """Return the run of a node."""
    settings: dict[str, Plain] = {
        "mesh": status.mesh,
        "node": status.name,
        "policy.name": status.policy,
        "model": status.model,
        "backbone": status.backbone,
        "settings fingerprint": status.fingerprint,
        "rounds.max": status.rounds_max,
        "training images": status.samples,
        "version": status.version,
    }
    return Run(
        name=name or status.name,
        group=status.mesh,
        folder=folder or OUT / status.mesh,
        settings=settings,
    )


def figures(metrics: Mapping[str, float], traffic: Mapping[str, int]) -> dict[str, float]:
    """Return the figures of a node's round by their names in a tracker, where "/" makes sections.

    metrics: as a round adopts them. traffic: counted since the node was started; bytes, but
    for numbers of messages.

        loss/training, loss/validation
        accuracy/own, accuracy/base, accuracy/new, accuracy/validation     0 to 1
        zero-shot accuracy/own, ...       of the hand-written prompt
        traffic/payload_out, traffic/wire_in, ..., traffic/messages_out
    """
    named = {_name(name): value for name, value in metrics.items()}
    return named | {f"traffic/{name}": float(value) for name, value in traffic.items()}


def _name(metric: str) -> str:
    if metric in {"loss", "validation_loss"}:
        return f"loss/{'training' if metric == 'loss' else 'validation'}"
    if metric in SPLITS:
        return f"accuracy/{metric}"
    if metric.startswith(ZERO_SHOT):
        return f"zero-shot accuracy/{metric.removeprefix(ZERO_SHOT)}"
    return f"metrics/{metric}"
