"""A mesh in one line, and lines that come only when something is new."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass, field
from typing import Any

import pytest
from rich.console import Console

from fednode.wire.gen import status_pb2
from fednode_bootstrap.watch import View, summary


@dataclass
class Node:
    name: str
    state: str = "running"
    status: status_pb2.StatusReply | None = None
    answers: bool = True


@dataclass
class Mesh:
    """Changes when the test says so."""

    members: dict[str, Node]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def change(self) -> None:
        self.asked.set()
        await self.changed.wait()
        self.changed.clear()


def reply(number: int, life: str = "running") -> status_pb2.StatusReply:
    return status_pb2.StatusReply(life=life, round=number, rounds_max=9, metrics={"loss": 0.5})


def mesh(**nodes: Node) -> Any:
    return Mesh(nodes)


def test_a_mesh_in_a_line_names_rounds_and_whatever_is_not_running() -> None:
    shown = mesh(
        a=Node("a", status=reply(3)),
        b=Node("b", "silent", reply(2)),
        c=Node("c", "loading", reply(0, "loading")),
        d=Node("d", "starting"),
    )
    assert summary(shown) == "a 3/9, b 2/9 silent, c loading, d starting"
    assert summary(None) == ""


async def test_a_line_is_printed_when_something_is_new_and_not_too_often() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=False, width=200)
    shown = mesh(a=Node("a", status=reply(1)))

    async def follow(view: View, rounds: list[int]) -> None:
        shown.asked.clear()
        task = asyncio.create_task(view.follow(shown))
        for number in rounds:
            await shown.asked.wait()
            shown.asked.clear()
            shown.members["a"].status = reply(number)
            shown.changed.set()
        await shown.asked.wait()
        task.cancel()
        await asyncio.wait({task})

    with View(console, lambda: "head", line_every_s=0.0) as view:
        await follow(view, [1, 2, 2])
    assert written.getvalue().splitlines() == ["head | a 1/9", "head | a 2/9"]
    with View(console, lambda: "late", line_every_s=1e9) as view:
        await follow(view, [3, 4])
    assert written.getvalue().splitlines()[2:] == ["late | a 2/9"]
    (seen,) = view.seen(shown)
    assert (seen.name, seen.state, seen.past.round) == ("a", "running", 4)


async def test_without_a_terminal_a_line_is_printed_when_something_is_new() -> None:
    console = Console(width=80, color_system=None, force_terminal=False)
    head = ["one"]
    watched = mesh(a=Node("a", status=reply(3)))
    changes = iter(["one", "two"])

    async def change() -> None:
        head[0] = next(changes, "")
        if not head[0]:
            raise asyncio.CancelledError

    watched.change = change
    with console.capture() as captured:
        view = View(console, lambda: head[0], line_every_s=0.0)
        with pytest.raises(asyncio.CancelledError):
            await view.follow(watched)
        view.event("something [/b] happened")
    lines = captured.get().splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["one", "two", "something [/b] happened"]
