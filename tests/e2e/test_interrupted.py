"""Ctrl-C at a terminal: each command says at once what was kept, and no process prints a trace."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from fednode.shipped import config_file
from fednode.transports.ports import free_ports
from tests.unit.identity.people import SmallMesh

pytestmark = pytest.mark.e2e
FEDNODE = (sys.executable, "-m", "fednode.cli")
# A bound for a test that hangs, not a measurement.
GUARD_S = 180.0
POLL_S = 0.02
CTRL_C = b"\x03"
CLOSED = ("--set", "tuning.kind=closed-form")


class Terminal:
    """A command at a terminal of its own, and all that it showed there."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._screen, inside = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            [*FEDNODE, *words],
            cwd=folder,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            preexec_fn=_become_foreground,
            env={**os.environ, "HOME": str(folder), "COLUMNS": "200"},
        )
        os.close(inside)

    def press_ctrl_c(self) -> None:
        """Send the key to all processes of the terminal."""
        os.write(self._screen, CTRL_C)

    def hang_up(self) -> None:
        """Close the terminal, as a window or ssh does."""
        os.close(self._screen)
        self._screen = -1

    def until(self, seen: Callable[[], bool]) -> None:
        """Read what is shown until something holds."""
        while not seen():
            assert select.select([self._screen], [], [], GUARD_S)[0], self.shown
            assert self._read(), self.shown

    def shows(self, text: str) -> None:
        """Read until a text is shown."""
        self.until(lambda: text in self.shown)

    def until_true(self, seen: Callable[[], bool]) -> None:
        """Look again and again until something holds, and read what is shown meanwhile."""
        end = time.monotonic() + GUARD_S
        while not seen():
            assert time.monotonic() < end, self.shown
            if select.select([self._screen], [], [], POLL_S)[0]:
                self._read()

    def ended(self) -> int:
        """Read until the command ends; return its exit code."""
        while self._read():
            pass
        return self.process.wait(GUARD_S)

    def close(self) -> None:
        """End what still runs."""
        self.process.kill()
        self.process.wait(GUARD_S)
        if self._screen >= 0:
            os.close(self._screen)

    def _read(self) -> bool:
        try:
            found = os.read(self._screen, 1 << 16)
        except OSError:  # all processes have closed the terminal
            return False
        self.shown += found.decode("utf-8", "replace")
        return bool(found)


def _hears_ctrl_c() -> None:
    # A test suite in the background ignores these signals, and hands that on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _become_foreground() -> None:
    _hears_ctrl_c()
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened = []

    def open_one(*words: str) -> Terminal:
        opened.append(Terminal(tmp_path, *words))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder of two classes with so many large images that decoding takes seconds."""
    noise = np.random.default_rng(1).integers(0, 256, (2_000, 2_000, 3), np.uint8)
    one = tmp_path / "noise.png"
    Image.fromarray(noise).save(one, compress_level=1)
    for name in ("night", "day"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for at in range(200):
            (tmp_path / "images" / name / f"{at}.png").symlink_to(one)
    return tmp_path / "images"


def peers(folder: Path) -> None:
    (port,) = free_ports(1)
    listed = [{"name": "a", "address": f"127.0.0.1:{port}"}]
    text = yaml.safe_dump({"mesh": "m", "insecure": True, "peers": listed})
    (folder / "peers.yaml").write_text(text)


def test_a_node_says_what_ctrl_c_does(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    peers(tmp_path)
    words = ("start", "--name", "a", "--set", "tuning.kind=closed-form", "--set", "rounds.max=0")
    node = terminal(*words, "--set", "rounds.min_interval_s=0.1")
    node.shows("listens on")
    node.shows("round 1")
    node.press_ctrl_c()
    assert node.ended() == 0
    assert "stopping: a round that is being written is completed" in node.shown
    assert re.search(r"a stopped after round \d+; the same command goes on from there", node.shown)
    assert "Traceback" not in node.shown


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("start", "--peers", "peers.yaml", "--name", "a", "--state", "a", *CLOSED), "listens on"),
        (("relay", "--state", "r", "--listen", "127.0.0.1:0"), "id"),
    ],
)
def test_a_daemon_whose_terminal_is_closed_ends_as_after_sigterm(
    terminal: Callable[..., Terminal],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    shown: str,
) -> None:
    peers(tmp_path)
    mesh = SmallMesh("m")
    mesh.write(tmp_path / "r", "r")
    listed = [{"name": "a", "address": "127.0.0.1:1"}]
    tree = {"mesh": "m", "mesh_key": mesh.mesh_key_text, "peers": listed}
    (tmp_path / "r" / "peers.yaml").write_text(yaml.safe_dump(tree))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    daemon = terminal(*words)
    daemon.shows(shown)
    daemon.hang_up()
    assert daemon.process.wait(GUARD_S) == 0
    assert [*(tmp_path / "tmp").iterdir()] == []


@pytest.mark.slow
def test_check_counts_images_and_says_what_it_keeps(
    terminal: Callable[..., Terminal], images: Path, tmp_path: Path
) -> None:
    words = ("check", "--set", f"data.path={images}", "--set")
    check = terminal(*words, f"cache.folder={tmp_path / 'one'}")
    check.until(lambda: bool(re.search(r"examining images \d+ of 400", check.shown)))
    check.press_ctrl_c()
    assert check.ended() == 130
    assert "stopped by Ctrl-C. The check is not complete." in check.shown
    assert "Traceback" not in check.shown
    piped = subprocess.Popen(
        [*FEDNODE, *words, f"cache.folder={tmp_path / 'two'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hears_ctrl_c,
    )
    assert piped.stderr is not None
    lines = iter(piped.stderr.readline, "")
    assert any(re.match(r"fednode: examining images \d+ of 400 \(\d+ s", line) for line in lines)
    piped.send_signal(signal.SIGINT)
    out, err = piped.communicate(timeout=GUARD_S)
    assert piped.returncode == 130
    assert "stopped by Ctrl-C. The check is not complete." in err
    assert "examining images" not in out


@pytest.mark.slow
def test_workers_of_an_experiment_print_no_trace(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    tree = {
        "title": "t",
        "data": {"path": "builtin", "shots": 1},
        "protocol": {"kind": "base-to-new", "clients": 2},
        "methods": ["local", "promptfl"],
        "rounds": 2,
        "seeds": [1],
    }
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(tree))
    run = terminal("experiment", "t.yaml", "--workers", "2")
    run.until_true(lambda: any(map(_imports_torch, _below(run.process.pid, "spawn_main"))))
    run.press_ctrl_c()
    assert run.ended() == 130
    assert "0 of 2 runs are kept; the same command goes on from there." in run.shown
    assert "Traceback" not in run.shown


@pytest.mark.slow
def test_processes_of_simulate_print_no_trace(terminal: Callable[..., Terminal]) -> None:
    scenario = str(config_file("sim/everything.yaml"))
    run = terminal("simulate", scenario, "--jobs", "2", "--count", "5000")
    run.until_true(lambda: len(_below(run.process.pid, "spawn_main")) >= 2)
    run.press_ctrl_c()
    assert run.ended() == 130
    assert "stopped by Ctrl-C." in run.shown
    assert "Traceback" not in run.shown


@pytest.mark.slow
def test_a_mesh_prints_no_trace_while_its_daemons_load(
    terminal: Callable[..., Terminal],
) -> None:
    mesh = terminal("mesh", "--nodes", "2", "--run-dir", "here")
    mesh.until_true(lambda: any(map(_imports_torch, _below(mesh.process.pid, "forkserver"))))
    mesh.press_ctrl_c()
    assert mesh.ended() == 0
    assert "All daemons have ended. The same command goes on from here." in mesh.shown
    assert "Traceback" not in mesh.shown


def _imports_torch(pid: int) -> bool:
    """Tell whether a process has begun to import torch, which takes a second or more."""
    try:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def _below(pid: int, word: str) -> list[int]:
    """Return the children of a process whose command line holds a word."""
    found = list[int]()
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread or a child that has ended
            lines = {
                int(one): Path(f"/proc/{one}/cmdline").read_text()
                for one in listed.read_text().split()
            }
            found += [one for one, line in lines.items() if word in line]
    return found
