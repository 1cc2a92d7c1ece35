"""A node that always answers the same, and what it answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
from rich.console import Console, RenderableType

from fednode.observe.events import LEVELS
from fednode.wire.gen import status_pb2, status_pb2_grpc


def reply(**changed: Any) -> status_pb2.StatusReply:
    made = status_pb2.StatusReply(
        name="a",
        mesh="clinic",
        address="127.0.0.1:7191",
        policy="zerodfl",
        life="running",
        round=12,
        rounds_max=150,
        phase="tuning",
        step=3,
        steps=8,
        metrics={"loss": 1.25, "own": 0.5, "zero_shot_own": 0.25},
        measured={"own": 0.5},
        uptime_s=200,
        samples=40,
        classes=[f"class {number}" for number in range(9)],
        model="fednode-mini",
        backbone="0123456789abcdef",
        alone=True,
        refused={"norm": 2},
        notes=["a note"],
        traffic=status_pb2.Traffic(messages_out=7, payload_out=1500, serialized_out=2_000_000),
    )
    made.peers.add(
        name="b", address="127.0.0.1:7192", state="dead", round=11, heard_s=90,
        reason="nobody answers",
    )  # fmt: skip
    made.events.add(level="warning", text="an image is damaged")
    made.MergeFrom(status_pb2.StatusReply(**changed))
    return made


NASTY = "\x1b]0;title\x07\x1b]52;c;Y2xpcA==\x07\x1b[2J\u202e[/ghost]"


def hostile() -> status_pb2.StatusReply:
    """Return what a daemon may say of itself and its peers that wants to harm who looks."""
    made = reply(name=NASTY, address=NASTY, life=NASTY, phase=NASTY, mesh=NASTY, uptime_s=1e300)
    made.metrics.update({"loss": 1e308, NASTY: float("nan")})
    made.refused[NASTY] = 1
    made.peers[0].MergeFrom(
        status_pb2.Peer(name="[/ghost]", address=NASTY, state=NASTY, heard_s=1e300, reason=NASTY)
    )
    made.events.add(time=1e300, text=NASTY, level=NASTY)
    return made


def member(name: str, state: str, reply: status_pb2.StatusReply | None) -> Any:
    """Return a node of a local mesh, whose daemon nobody started."""
    return SimpleNamespace(name=name, state=state, status=reply)


def drawn(page: RenderableType, width: int = 100) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(page)
    return captured.get()


class Canned(status_pb2_grpc.NodeServicer):
    """A node that always answers the same; hostile: with texts that harm a terminal."""

    def __init__(self, hostile: bool = False, **changed: Any) -> None:
        self.hostile, self.changed = hostile, changed

    async def Status(self, request: Any, context: Any) -> status_pb2.StatusReply:
        return hostile() if self.hostile else reply(**self.changed)

    async def Control(self, request: Any, context: Any) -> status_pb2.ControlReply:
        return status_pb2.ControlReply(text=NASTY)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[status_pb2.Event]:
        if self.hostile:
            yield status_pb2.Event(time=1e300, text=NASTY, level="[/x]", fields={NASTY: NASTY})
            return
        for number, level in enumerate(("info", "warning"), 1):
            if number > request.since and LEVELS[level] >= LEVELS[request.level]:  # type: ignore[index]
                yield status_pb2.Event(
                    time=1e9 + number, kind="kind", text=f"a {level}", level=level, number=number,
                    fields={"peer": "b"},
                )  # fmt: skip


@contextmanager
def node(hostile: bool = False, **changed: Any) -> Iterator[str]:
    """Serve a canned node from a thread of its own; yield its address. changed: in its status."""
    ready, stop = threading.Event(), threading.Event()
    port: list[int] = []

    async def serve() -> None:
        server = grpc.aio.server()
        status_pb2_grpc.add_NodeServicer_to_server(Canned(hostile, **changed), server)
        port.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        ready.set()
        await asyncio.get_running_loop().run_in_executor(None, stop.wait)
        await server.stop(None)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield f"127.0.0.1:{port[0]}"
    finally:
        stop.set()
        thread.join()
