"""One member against the pace, the rounds and the traffic of a live mesh, in one process over TLS.

    python -m tests.e2e.attacks.members CASE

    none    nobody lies: what the other cases of PromptFL are compared with
    late    d contributes 0.8 of the deadline after it could
    mute    d contributes in time, and answers "busy" to all contributions
    again   d asks a 100 times a second for what a sent in this round
    even    nobody lies: what `busy` is compared with
    busy    f answers "busy" to all rows (ZeroDFL, async)
    two, half, minority   the other of two, two of four, two of five members claim round 10^9 in
            every message of a round (ZeroDFL, sync, 30 rounds)

Prints the rounds a second of each honest node, or its round, and what was sent to whom.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from fednode.core.settings import RoundSettings, StartSettings
from fednode.core.types import Message
from fednode.errors import FednodeError
from fednode.lab.sim.host import Liar
from fednode.learn.quadratic import QuadraticLearner
from fednode.wire import codec
from tests.contract.faults import pause
from tests.e2e.attacks.live import LIMIT_S, Mesh, Node, Scene, live

SECONDS: Final = 20.0
DEADLINE_S: Final = 3.0
FAR: Final = 10**9
ROWS, WIDTH = 512, 512
"""Of the prompts in `again`: 1 MiB."""
Sink = Callable[[bytes, str], Awaitable[bytes]]


def sync(most: int = 0) -> RoundSettings:
    """Return rounds of 0.2 s that wait for all."""
    start = StartSettings(1, LIMIT_S)
    return RoundSettings("sync", most, min_interval_s=0.2, deadline_s=DEADLINE_S, start=start)


def answering(node: Node, got: Counter[str], busy: bool) -> None:
    """Count the contributions that a node gets; if `busy`, it answers "busy" to them."""
    inner = node.driver.on_frame

    async def on_frame(frame: bytes, caller: str) -> bytes:
        contribution = codec.decode(frame).phase == "prompts"
        got[node.name] += contribution
        answer = await inner(frame, caller)
        return codec.encode_ack("busy", "later") if busy and contribution else answer

    node.transport._exchange.on_frame = on_frame


def delaying(mesh: Mesh, name: str) -> None:
    """Let a node's contributions leave 0.8 of the deadline late."""
    mouth = mesh.nodes[name].transport
    inner = mouth.send

    async def send(to: str, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        if codec.decode(frame).phase == "prompts":
            await pause(0.8 * DEADLINE_S)
            timeout_s += DEADLINE_S
        return await inner(to, frame, timeout_s, who)

    mouth.send = send  # type: ignore[method-assign]


async def asking(mesh: Mesh, name: str) -> int:
    """Ask a for what it sent in this round, until the task ends; return how often."""
    mouth, count = mesh.transport(name), 0
    node = mesh.nodes[name]
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        asked = node.kernel.context.message(max(0, node.round - 1), "again")
        with contextlib.suppress(FednodeError):
            await mouth.send(mesh.at["a"], codec.encode(asked, "float32"), 5.0, "a")
            count += 1
        await pause(0.01)
    await mouth.close()
    return count


async def pace(folder: Path, case: str) -> None:
    """Print the pace of the honest nodes, and what each node sent or got."""
    zerodfl = case in {"even", "busy"}
    names = tuple("abcdef" if zerodfl else "abcd")
    rounds = replace(sync(), mode="async" if zerodfl else "sync")
    scene = Scene(
        names,
        names[:-1],
        rounds,
        {"recipients": 1} if zerodfl else {},
        policy="zerodfl" if zerodfl else "promptfl",
        learner=lambda name: (
            QuadraticLearner(name, rows=ROWS, width=WIDTH)
            if case == "again"
            else QuadraticLearner(name)
        ),
    )
    async with live(folder, names, scene) as mesh:
        got, bad = Counter[str](), names[-1]
        for name in names:
            answering(mesh.nodes[name], got, name == bad and case in {"busy", "mute"})
        if case == "late":
            delaying(mesh, bad)
        began, first = time.monotonic(), {name: mesh.nodes[name].round for name in scene.honest}
        sent = mesh.nodes["a"].driver.telemetry.total.as_dict()
        asked = 0
        if case == "again":
            asked = await asking(mesh, bad)
        else:
            await pause(SECONDS)
        took = time.monotonic() - began
        speed = {name: (mesh.nodes[name].round - first[name]) / took for name in first}
        now = mesh.nodes["a"].driver.telemetry.total.as_dict()
        out = {key: now[key] - sent.get(key, 0) for key in now if key.endswith("_out")}
        print(case, {name: round(one, 2) for name, one in speed.items()}, "rounds a second;")
        print(
            "  contributions received", dict(sorted(got.items())), "; a sent", out, "asked", asked
        )


async def jump(folder: Path, case: str) -> None:
    """Print in which rounds the honest nodes are, second by second."""
    count, liars = {"two": (2, 1), "half": (4, 2), "minority": (5, 2)}[case]
    names = tuple("abcde"[:count])
    honest = names[: count - liars]

    def say(to: str, message: Message) -> list[tuple[str, Message]]:
        far = message.phase in {"done", "prompts"}
        return [(to, replace(message, round=message.round + FAR) if far else message)]

    scene = Scene(names, honest, sync(30), {"recipients": 1}, policy="zerodfl")
    async with live(folder, names, scene) as mesh:
        for name in names[count - liars :]:
            mesh.nodes[name].transport.liar = Liar(say)  # type: ignore[attr-defined]
        for second in range(1, 9):
            await pause(1.0)
            where = {
                one: (mesh.nodes[one].round, mesh.nodes[one].kernel.view().life) for one in honest
            }
            print(
                case,
                f"after {second} s",
                {one: f"{at} {life}" for one, (at, life) in where.items()},
            )


def main(case: str) -> None:
    """Play one case."""
    play = jump if case in {"two", "half", "minority"} else pace
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder), case))


if __name__ == "__main__":
    main(sys.argv[1])
