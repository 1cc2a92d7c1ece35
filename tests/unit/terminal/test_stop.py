"""What the first and the second Ctrl-C do to work that runs."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from fednode.terminal import stop as module
from fednode.terminal.stop import Interrupted, call_at_end, held_back, until_stopped

GUARD_S = 180.0


async def test_work_that_ends_gives_its_result() -> None:
    said: list[str] = []

    async def work() -> int:
        return 7

    assert await until_stopped(work(), said.append) == 7
    assert said == []


async def test_the_first_signal_cancels_and_the_second_hurries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HURRY_EVERY_S", 0.0)
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

    async with asyncio.timeout(GUARD_S):
        with pytest.raises(Interrupted, match="stopped by SIGTERM") as ended:
            await until_stopped(stubborn(), said.append)
    assert ended.value.exit_code == 128 + signal.SIGTERM
    assert cancelled == 3
    assert said == ["Ending all daemons; ask again to end them at once."]
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_closed_terminal_is_a_signal_to_end_but_not_under_nohup() -> None:
    heard = asyncio.Queue[signal.Signals]()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in call_at_end(heard.put_nowait)
        os.kill(os.getpid(), signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert signal.SIGHUP in call_at_end(heard.put_nowait)
        for number in (signal.SIGHUP, signal.SIGTERM):
            os.kill(os.getpid(), number)
            async with asyncio.timeout(GUARD_S):
                assert await heard.get() == number
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(signal.SIGHUP, before)


def test_processes_that_a_block_starts_do_not_get_a_signal() -> None:
    show = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    command = [sys.executable, "-c", show]
    with held_back(signal.SIGINT):
        inside = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    outside = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (inside, outside) == ("True\n", "False\n")


def test_a_program_that_ignores_sigterm_is_killed_when_its_parent_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[int, object]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(time, "sleep", lambda seconds: sent.append((0, seconds)))
    ended = SimpleNamespace(join=lambda: sent.append((0, "ended")))
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: ended)
    module.end_with_parent()
    own = os.getpid()
    pauses = [(0, "ended"), (own, signal.SIGTERM), (0, module.GRACE_S), (own, signal.SIGKILL)]
    assert sent == pauses
