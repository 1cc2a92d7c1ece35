"""The live table of a local mesh, and its line without a terminal."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from fednode.wire.gen import status_pb2
from fednode_bootstrap import view
from tests.unit.commands.canned import drawn, member


class Mesh:
    """A mesh that changes when the test says so."""

    def __init__(self, **members: Any) -> None:
        self.members = members
        self.changed = asyncio.Event()
        self.asked = asyncio.Event()

    async def __aenter__(self) -> Mesh:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End nothing."""

    async def change(self) -> None:
        self.asked.set()
        await self.changed.wait()
        self.changed.clear()

    async def show(self, number: int) -> None:
        """Let the node be in a round, and wait until that was looked at."""
        await self.asked.wait()
        self.asked.clear()
        self.members["a"].status = reply(number)
        self.changed.set()
        await self.asked.wait()


def reply(number: int, life: str = "running") -> status_pb2.StatusReply:
    return status_pb2.StatusReply(life=life, round=number, rounds_max=9, metrics={"loss": 0.5})


def test_a_mesh_in_a_line_names_rounds_and_whatever_is_not_running() -> None:
    seen = [
        member("a", "running", reply(3)),
        member("b", "silent", reply(2)),
        member("c", "loading", reply(0, "loading")),
        member("d", "starting", None),
    ]
    assert view.summary(seen) == "a 3/9, b 2/9 silent, c loading, d starting"


async def test_without_a_terminal_a_line_is_printed_when_something_is_new_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, heads = io.StringIO(), ["head"]
    console = Console(file=written, force_terminal=False, width=200)
    mesh: Any = Mesh(a=member("a", "running", reply(1)))
    monkeypatch.setattr(view, "LINE_EVERY_S", 0.0)
    async with view.shown(mesh, console, lambda: heads[0]):
        for number in (1, 2, 2):
            await mesh.show(number)
        mesh.on_event("something [/b] happened")
        heads[0] = "late"
        monkeypatch.setattr(view, "LINE_EVERY_S", 1e9)
        await mesh.show(3)
    assert written.getvalue().splitlines() == [
        *("head | a 1/9", "head | a 2/9", "something [/b] happened")
    ]


def test_the_live_view_shows_what_each_node_measures_and_why_one_says_nothing() -> None:
    one = status_pb2.StatusReply(
        name="a", life="running", round=3, rounds_max=9, phase="tuning", step=2, steps=5,
        rounds_run=3, rounds_merged=2,
        metrics={"loss": 1.25}, measured={"own": 0.9, "base": 0.5, "new": 0.25}, alone=True,
    )  # fmt: skip
    coming = status_pb2.StatusReply(name="b", life="loading")
    nodes = [
        member("a", "running", one),
        member("b", "loading", coming),
        member("c", "exit code 70", None),
    ]
    assert [" ".join(line.split()) for line in drawn(view.table(nodes)).splitlines()] == [
        "node state round merged doing loss own % base % new % peers sent",
        "a running 3/9 2/3 tuning 2/5 1.25 90.0 50.0 25.0 alone 0 B",
        "b loading",
        "c exit code 70",
    ]


def test_the_live_view_shows_who_is_relayed_and_why() -> None:
    peers = [
        status_pb2.Peer(name="b", state="alive", path="relay r:443", path_why="its port is shut"),
        status_pb2.Peer(name="c", state="alive", path="direct"),
    ]
    one = status_pb2.StatusReply(name="a", life="running", peers=peers)
    shown = drawn(view.page(Text("head"), [member("a", "running", one)]))
    assert "2/2, 1 relayed" in shown
    assert "a: relayed to b: its port is shut" in shown
