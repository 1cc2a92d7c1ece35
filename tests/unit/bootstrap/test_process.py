"""One child process: started with a log, ended by SIGTERM or SIGKILL, described in words."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fednode_bootstrap.process import TAIL_BYTES, Daemon, how_it_ended

GUARD_S = 180.0
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
signal.pause()
"""


def daemon(log: Path, code: str) -> Daemon:
    return Daemon("a", (sys.executable, "-c", code), log)


async def ready(made: Daemon) -> None:
    """Wait until the process wrote its first line."""
    async with asyncio.timeout(GUARD_S):
        while made.last_line() != "ready":
            await asyncio.to_thread(os.sched_yield)


async def test_it_runs_in_a_session_of_its_own_and_tells_how_it_ended(tmp_path: Path) -> None:
    made = daemon(tmp_path / "log", "import os; print(os.getsid(0) == os.getpid()); exit(3)")
    assert (made.started, made.running, made.pid, made.exit_code) == (False, False, None, None)
    await made.start()
    async with asyncio.timeout(GUARD_S):
        assert await made.ended() == 3
    assert (made.started, made.running, made.pid, made.exit_code) == (True, False, None, 3)
    assert made.last_line() == "True"


async def test_a_second_run_appends_and_its_last_line_is_its_own(tmp_path: Path) -> None:
    made = daemon(tmp_path / "log", "print('once')")
    for _ in range(2):
        await made.start()
        await made.ended()
    assert (tmp_path / "log").read_text() == "once\nonce\n"
    made.command = (sys.executable, "-c", "")
    await made.start()
    await made.ended()
    assert made.last_line() == ""


async def test_who_listens_ends_by_sigterm_and_who_does_not_is_killed(tmp_path: Path) -> None:
    willing = daemon(tmp_path / "willing", STUBBORN.replace("SIG_IGN", "SIG_DFL"))
    stubborn = daemon(tmp_path / "stubborn", STUBBORN)
    for made, grace_s, wanted in (
        (willing, GUARD_S, -signal.SIGTERM),
        (stubborn, 0.0, -signal.SIGKILL),
    ):
        await made.start()
        await ready(made)
        await made.stop(grace_s)
        assert made.exit_code == wanted
        made.signal(signal.SIGTERM)  # it has ended: nothing happens
        await made.stop(0.0)


async def test_what_was_never_started_needs_no_end(tmp_path: Path) -> None:
    made = daemon(tmp_path / "log", "")
    await made.stop(0.0)
    assert made.last_line() == ""
    with pytest.raises(RuntimeError, match="'a' was never started"):
        await made.ended()


async def test_it_starts_once_while_it_runs(tmp_path: Path) -> None:
    calls: list[Sequence[str]] = []

    class Running:
        pid, returncode = os.getpid(), None

    async def launch(command: Sequence[str], log: Path) -> Running:
        calls.append(command)
        return Running()

    made = Daemon("a", ("x",), tmp_path / "log", launch)  # type: ignore[arg-type]
    await made.start()
    await made.start()
    assert calls == [("x",)]
    assert made.pid == os.getpid()


async def test_the_last_line_of_a_long_log_is_found_at_its_end(tmp_path: Path) -> None:
    made = daemon(tmp_path / "log", f"print('x' * {3 * TAIL_BYTES}); print(' last '); print()")
    await made.start()
    await made.ended()
    assert made.last_line() == "last"


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exit code 0"), (70, "exit code 70"), (-9, "signal SIGKILL"), (-200, "signal 200")],
)
def test_an_end_is_described_in_words(code: int, text: str) -> None:
    assert how_it_ended(code) == text
