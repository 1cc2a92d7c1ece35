"""One child process: started with a log, ended by SIGTERM or SIGKILL, described in words."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fednode_bootstrap import daemon
from fednode_bootstrap.daemon import TAIL_BYTES, Daemon, exit_words, stop
from tests.contract.faults import pause
from tests.unit.bootstrap.test_mesh import WAYS, start_by

GUARD_S = 180.0
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.{})
print("ready")
signal.pause()
"""

Make = Callable[[str], Daemon]


@pytest.fixture(params=WAYS)
def program(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Make:
    """Return a function that makes a daemon of a program's code."""
    monkeypatch.syspath_prepend(tmp_path)
    start_by(request.param, monkeypatch)

    def make(code: str) -> Daemon:
        number = len(list(tmp_path.glob("*.py")))
        (tmp_path / f"program_{number}.py").write_text(code)
        log = tmp_path / f"{number}.log"
        return Daemon("a", ("one", "two"), log, f"program_{number}")

    return make


async def test_it_runs_as_a_program_in_a_session_of_its_own_and_tells_how_it_ended(
    program: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARD", "7")
    code = (
        "import os, signal, sys\n"
        "masked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        "print(sys.argv[1:], __name__, repr(sys.stdin.read()), os.getcwd(), os.environ['WARD'])\n"
        "print(os.getsid(0) == os.getpid(), masked)\n"
        "sys.exit(3)\n"
    )
    made = program(code)
    assert (made.started, made.running, made.pid, made.exit_code) == (False, False, None, None)
    await made.start()
    assert (made.started, made.running) == (True, True)
    assert await made.ended() == 3
    assert (made.started, made.running, made.pid, made.exit_code) == (True, False, None, 3)
    first = f"['one', 'two'] __main__ '' {tmp_path} 7"
    assert made.log.read_text().splitlines() == [first, "True False"]
    assert made.last_line() == "True False"


async def test_a_second_run_appends_and_its_last_line_is_its_own(
    program: Make, tmp_path: Path
) -> None:
    made = program("print('once')")
    for _ in range(2):
        await made.start()
        await made.ended()
    assert made.log.read_text() == "once\nonce\n"
    (tmp_path / "program_0.py").write_text("")
    await made.start()
    await made.ended()
    assert made.last_line() == ""


async def test_who_listens_ends_by_sigterm_and_who_does_not_is_killed(program: Make) -> None:
    willing, stubborn = program(STUBBORN.format("SIG_DFL")), program(STUBBORN.format("SIG_IGN"))
    for made, grace_s, wanted in (
        (willing, GUARD_S, -signal.SIGTERM),
        (stubborn, 0.0, -signal.SIGKILL),
    ):
        await made.start()
        while made.last_line() != "ready":
            await pause(0.01)
        await stop((made,), grace_s)
        assert made.exit_code == wanted
        made.signal(signal.SIGTERM)  # it has ended: nothing happens
        await stop((made,), 0.0)


async def test_what_was_never_started_needs_no_end(program: Make) -> None:
    made = program("")
    await stop((made,), 0.0)
    assert made.last_line() == ""
    with pytest.raises(RuntimeError, match="'a' was never started"):
        await made.ended()


async def test_it_starts_once_while_it_runs(program: Make) -> None:
    made = program(STUBBORN.format("SIG_DFL"))
    await made.start()
    pid = made.pid
    await made.start()
    assert made.pid == pid
    await stop((made,), GUARD_S)


async def test_a_start_that_is_cancelled_while_it_takes_long_leaves_no_process(
    program: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first fork waits for torch and the model; signals are heard meanwhile."""
    begin, go_on = multiprocessing.process.BaseProcess.start, threading.Event()
    waiting: list[multiprocessing.process.BaseProcess] = []

    def begin_late(process: multiprocessing.process.BaseProcess) -> None:
        waiting.append(process)
        go_on.wait(GUARD_S)
        begin(process)

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", begin_late)
    made = program(STUBBORN.format("SIG_DFL"))
    starting = asyncio.create_task(made.start())
    while not waiting:
        await pause(0.01)
    assert not starting.done()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not made.started
    go_on.set()
    async with asyncio.timeout(GUARD_S):
        while waiting[0].exitcode is None:
            await pause(0.01)
    assert waiting[0].exitcode == -signal.SIGKILL


async def test_a_start_that_fails_is_told(program: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: multiprocessing.process.BaseProcess) -> None:
        raise OSError("no process is left")

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", refuse)
    made = program("")
    with pytest.raises(OSError, match="no process is left"):
        await made.start()
    assert not made.started


async def test_the_last_line_of_a_long_log_is_found_at_its_end(program: Make) -> None:
    made = program(f"print('x' * {3 * TAIL_BYTES}); print(' last '); print()")
    await made.start()
    await made.ended()
    assert made.last_line() == "last"


def test_a_program_that_ignores_sigterm_is_killed_when_its_parent_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[int, object]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(time, "sleep", lambda seconds: sent.append((0, seconds)))
    ended = SimpleNamespace(join=lambda: sent.append((0, "ended")))
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: ended)
    daemon.end_with_parent()
    own = os.getpid()
    pauses = [(0, "ended"), (own, signal.SIGTERM), (0, daemon.GRACE_S), (own, signal.SIGKILL)]
    assert sent == pauses


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exit code 0"), (70, "exit code 70"), (-9, "signal SIGKILL"), (-200, "signal 200")],
)
def test_an_end_is_described_in_words(code: int, text: str) -> None:
    assert exit_words(code) == text
