"""`fednode mesh` shows its daemons, and Ctrl-C ends all of them.

Method: stand-ins for daemons, and real signals to this very process, which the code under test
takes over while it runs.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fednode.errors import NeverMerged
from fednode.wire.gen.status_pb2 import StatusReply
from fednode_bootstrap import local
from fednode_bootstrap.mesh import MeshError, MeshSettings
from tests.unit.bootstrap.log_observer import LogObserver
from tests.unit.bootstrap.test_mesh import FAKE, ROOT, gone

Options = Callable[..., MeshSettings]


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)

    def build(*settings: str, nodes: int = 2) -> MeshSettings:
        return MeshSettings(
            run_dir=local.RUNS, nodes=nodes, settings=settings, poll_s=0.01, module=FAKE
        )

    return build


class Interrupting(LogObserver):
    """Send this process signals once all daemons of the mesh have answered, one at each look."""

    def __init__(self, folder: Path, signals: list[signal.Signals]) -> None:
        super().__init__(folder)
        self.signals = signals
        self.pids: set[int] = set()

    async def status(self, address: str) -> StatusReply:
        found = await super().status(address)
        self.pids.add(found.pid)
        if len(self.pids) == 2 and self.signals:
            for number in self.signals:
                asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
            self.signals = []
        return found


def plain(**more: Any) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, width=160, **more), written


async def test_a_mesh_that_is_through_shows_its_figures_and_leaves_nothing(
    options: Options, tmp_path: Path
) -> None:
    screen, written = plain(force_terminal=True, color_system=None)
    assert await local.run(options(), screen, LogObserver(tmp_path)) == 0
    head, *nodes = [" ".join(line.split()) for line in written.getvalue().splitlines()[-3:]]
    assert head.endswith("state round merged doing loss own % base % new % peers sent")
    assert nodes[1].startswith("node-2 finished 2/2 idle 90.0 32.0 20.0 0/0 0 B")
    assert list((tmp_path / "runs").iterdir()) == []


class Lonely(LogObserver):
    """Tell of one daemon that it merged nothing of its peers. wish: it is meant to be alone."""

    def __init__(self, folder: Path, wish: bool) -> None:
        super().__init__(folder)
        self.wish = wish

    async def status(self, address: str) -> StatusReply:
        found = await super().status(address)
        alone = found.name == "node-2"
        found.alone_by_wish, found.policy = self.wish, "zerodfl"
        found.rounds_run, found.rounds_merged = found.round, 0 if alone else found.round
        return found


async def test_a_mesh_that_did_not_federate_ends_with_an_error_of_its_own(
    options: Options, tmp_path: Path
) -> None:
    screen, written = plain()
    with pytest.raises(NeverMerged, match=r"peers: node-2 \(0 of 2\)\.") as caught:
        await local.run(options(), screen, Lonely(tmp_path, wish=False))
    assert caught.value.exit_code == 1
    assert "Nodes of gossip wait for no other" in str(caught.value)
    assert str(caught.value).endswith("Their logs in runs/mesh say more.")
    assert (tmp_path / "runs" / "mesh" / "node-2.log").exists()
    assert "node-2 2/2 finished" in written.getvalue(), "the summary is shown before"
    assert await local.run(options(), screen, Lonely(tmp_path, wish=True)) == 0


async def test_without_a_terminal_there_are_plain_lines(options: Options, tmp_path: Path) -> None:
    screen, written = plain()
    asked = options("rounds.max=7", "policy.name=zerodfl")
    assert await local.run(asked, screen, LogObserver(tmp_path), keep=True) == 0
    assert "node-1 2/7 finished, node-2 2/7 finished" in written.getvalue()
    assert "\x1b" not in written.getvalue()
    assert (tmp_path / "runs" / "mesh" / "node-1.log").exists()
    assert "State and logs are in runs/mesh" in written.getvalue()


@pytest.mark.parametrize(
    ("settings", "signals", "stay"),
    [
        (["fake.life=running"], [signal.SIGINT], False),
        ([], [signal.SIGTERM], True),
        # Asked twice, it kills daemons that do not listen.
        (["fake.life=running", "fake.stubborn=1"], [signal.SIGINT, signal.SIGINT], False),
    ],
)
async def test_ctrl_c_and_sigterm_end_all_daemons(
    options: Options,
    tmp_path: Path,
    settings: list[str],
    signals: list[signal.Signals],
    stay: bool,
) -> None:
    screen, written = plain()
    observer = Interrupting(tmp_path, signals)
    assert await local.run(options(*settings), screen, observer, stay=stay) == 0
    assert len(observer.pids) == 2
    assert all(map(gone, observer.pids))
    assert observer.closed
    assert "All daemons have ended." in written.getvalue()


async def test_a_mesh_of_which_nothing_is_left_is_an_error(
    options: Options, tmp_path: Path
) -> None:
    screen, written = plain()
    asked = options("fake.exit=node-1", "fake.code=2", nodes=1)
    with pytest.raises(MeshError, match="out of ink"):
        await local.run(asked, screen, LogObserver(tmp_path))
    # What happened stays where it can be read.
    assert (tmp_path / "runs" / "mesh" / "node-1.log").exists()
    assert "node-1 ended with exit code 2" in written.getvalue()
