"""A mesh while it runs: its line, and the end that the user asks for by signals."""

from __future__ import annotations

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fednode.wire.gen import status_pb2
from fednode_bootstrap import watch
from fednode_bootstrap.watch import Interrupted, View, interruptible, summary, until

GUARD_S = 20.0


def member(name: str, state: str = "running", **status: Any) -> SimpleNamespace:
    reply = status_pb2.StatusReply(**status) if status else None
    return SimpleNamespace(name=name, state=state, status=reply, answers=bool(status))


def mesh(*members: SimpleNamespace) -> Any:
    return SimpleNamespace(members={one.name: one for one in members})


def test_a_mesh_is_one_line_with_rounds_and_what_is_not_running() -> None:
    found = summary(
        mesh(
            member("a", life="running", round=3, rounds_max=9),
            member("b", life="loading", round=0, rounds_max=9),
            member("c", "dead", life="running", round=2, rounds_max=9),
            member("d"),
        )
    )
    assert [part.split(" ", 1)[0] for part in found.split(", ")] == ["a", "b", "c", "d"]
    first, second, third, fourth = found.split(", ")
    assert "3" in first
    assert second == "b "
    assert third.startswith("c ")
    assert third.endswith(" dead")
    assert fourth == "d "
    assert summary(None) == ""


async def test_without_a_terminal_a_line_is_printed_when_something_is_new() -> None:
    console = Console(width=80, color_system=None, force_terminal=False)
    head = ["one"]
    watched = mesh(member("a", life="running", round=3, rounds_max=9))
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


async def test_work_that_nobody_stops_returns_its_result() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    with interruptible(lambda text: None) as stop:
        assert await until(work(), stop) == 7


async def test_the_first_signal_cancels_and_the_second_hurries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "HURRY_EVERY_S", 0.0)
    said: list[str] = []
    cancelled = 0
    before = signal.getsignal(signal.SIGTERM)

    async def stubborn() -> None:
        nonlocal cancelled
        os.kill(os.getpid(), signal.SIGTERM)
        while cancelled < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1
                if cancelled == 1:
                    os.kill(os.getpid(), signal.SIGTERM)

    with interruptible(said.append) as stop:
        async with asyncio.timeout(GUARD_S):
            with pytest.raises(Interrupted, match="stopped by SIGTERM") as ended:
                await until(stubborn(), stop)
    assert ended.value.exit_code == 128 + signal.SIGTERM
    assert cancelled == 3
    assert said == ["Ending all daemons; ask again to end them at once."]
    assert signal.getsignal(signal.SIGTERM) is before
