"""A tethered program ends when the process that started it lets go of its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fednode_bootstrap import tether

GUARD_S = 180.0
PROGRAM = """
import os, signal, sys, threading
print(sys.argv[1:], __name__, repr(sys.stdin.read()), flush=True)
if sys.argv[1:] == ["deaf"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Event().wait()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    path = os.pathsep.join((str(folder), *sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", "fednode_bootstrap.tether", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_a_program_runs_as_main_with_an_empty_input_and_ends_with_its_starter(
    folder: Path,
) -> None:
    with started(folder, "program", "one", "two") as ran:
        assert ran.stdout is not None
        assert ran.stdin is not None
        assert ran.stdout.readline() == "['one', 'two'] __main__ ''\n"
        assert ran.poll() is None
        ran.stdin.close()  # what the kernel does, however the starter ends
        assert ran.wait(GUARD_S) == -signal.SIGTERM


def test_it_says_how_it_is_used(folder: Path) -> None:
    with started(folder) as ran:
        assert ran.wait(GUARD_S) == 1
        assert ran.stderr is not None
        assert "usage: python -m fednode_bootstrap.tether MODULE" in ran.stderr.read()


def test_a_program_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, object]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(time, "sleep", lambda seconds: sent.append((0, seconds)))
    theirs, ours = os.pipe()
    os.write(ours, b"still there")  # the starter never writes; what comes is passed over
    os.close(ours)
    tether.watch(theirs, grace_s=7.0)
    os.close(theirs)
    assert sent == [(os.getpid(), signal.SIGTERM), (0, 7.0), (os.getpid(), signal.SIGKILL)]
