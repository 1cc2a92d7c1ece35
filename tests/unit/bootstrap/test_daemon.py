"""One child process: started with a log, ended by SIGTERM or SIGKILL, described in words."""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from fednode import freed
from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.learn import build
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


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that makes a daemon of a program's code."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(code: str) -> Daemon:
        number = len(list(tmp_path.glob("*.py")))
        (tmp_path / f"program_{number}.py").write_text(code)
        log = tmp_path / f"{number}.log"
        return Daemon("a", ("one", "two"), log, f"program_{number}")

    return make


@pytest.mark.parametrize("way", WAYS)
async def test_it_runs_as_a_program_in_a_session_of_its_own_and_tells_how_it_ended(
    program: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    start_by(way, monkeypatch)
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


async def test_each_run_appends_to_the_log_and_its_last_line_is_its_own(program: Make) -> None:
    once, silent = program("print('once')"), program("")
    long = program(f"print('x' * {3 * TAIL_BYTES}); print(' last '); print()")
    silent.log = once.log
    for made, last in ((once, "once"), (once, "once"), (silent, ""), (long, "last")):
        await made.start()
        await made.ended()
        assert made.last_line() == last
    assert once.log.read_text() == "once\nonce\n"


async def test_who_listens_ends_by_sigterm_and_who_does_not_is_killed(program: Make) -> None:
    willing, stubborn = program(STUBBORN.format("SIG_DFL")), program(STUBBORN.format("SIG_IGN"))
    with pytest.raises(RuntimeError, match="'a' was never started"):
        await willing.ended()
    for made, grace_s, wanted in (
        (willing, GUARD_S, -signal.SIGTERM),
        (stubborn, 0.0, -signal.SIGKILL),
    ):
        await stop((made,), 0.0)  # what was never started needs no end
        await made.start()
        pid = made.pid
        await made.start()
        assert made.pid == pid, "it starts once while it runs"
        while made.last_line() != "ready":
            await pause(0.01)
        await stop((made,), grace_s)
        assert made.exit_code == wanted
        made.signal(signal.SIGTERM)  # it has ended: nothing happens
        await stop((made,), 0.0)


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


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exit code 0"), (70, "exit code 70"), (-9, "signal SIGKILL"), (-200, "signal 200")],
)
def test_an_end_is_described_in_words(code: int, text: str) -> None:
    assert exit_words(code) == text


def test_the_server_knows_the_settings_of_the_daemons_and_nobody_else_sees_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[Any]()
    monkeypatch.setattr(
        forkserver, "ensure_running", lambda: seen.append(json.loads(os.environ[daemon.PRELOAD]))
    )
    monkeypatch.chdir(tmp_path)
    daemon.start_server(Path("node.yaml"), ("seed=2",))
    daemon.start_server(None, ())
    assert seen == [[str(tmp_path / "node.yaml"), ["seed=2"]], [None, []]]
    assert daemon.PRELOAD not in os.environ


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (
            '"model.precision=bfloat16", "policy.name=promptfl"',
            ["arena", 1, ModelSettings(precision="bfloat16"), (os._exit, 0), "frozen"],
        ),
        ('"tuning.kind=closed-form"', []),
        ('"no.such=1"', [(os._exit, 0), "frozen"]),  # a fault is left to the daemons
    ],
)
def test_one_arena_and_one_thread_come_before_the_model(
    monkeypatch: pytest.MonkeyPatch, words: str, loaded: list[Any]
) -> None:
    found: list[Any] = []
    monkeypatch.setattr(freed, "use_one_arena", lambda: found.append("arena"))
    monkeypatch.setattr(build, "use_threads", found.append)
    monkeypatch.setattr(clip, "keep", found.append)
    # Libraries that load meanwhile may register handlers of their own.
    ours = (os._exit, 0)
    monkeypatch.setattr(
        atexit, "register", lambda *what: found.append(what) if what == ours else None
    )
    monkeypatch.setattr(gc, "freeze", lambda: found.append("frozen"))
    daemon.load(f"[null, [{words}]]")
    assert found == loaded
