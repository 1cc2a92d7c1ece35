"""`fednode track` as a user sees it: what it refuses, and how it ends when a tracker fails."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fednode.lab.commands import track as command
from tests.unit.commands.run import Fednode
from tests.unit.lab.track.conftest import FAKE
from tests.unit.lab.track.test_cells import experiment

ROOT = Path(__file__).resolve().parents[4]
GUARD_S = 180.0
# A test suite in the background inherits an ignored SIGINT, and hands it on.
PROGRAM = """
import signal
import sys
from fednode.cli import main
from fednode.lab.track import trackers, writing
signal.signal(signal.SIGINT, signal.default_int_handler)
writing.LAST_S = 0.2
writing.Patient.__init__.__defaults__ = ({limit},)
trackers.TRACKERS["wandb"] = trackers.Shipped(
    "Fake", "tests.unit.lab.track.broken:{name}", "json"
)
main(["track", sys.argv[1], "--to", "wandb"])
"""


@pytest.fixture
def fednode(capsys: pytest.CaptureFixture[str]) -> Fednode:
    return Fednode(capsys)


def started(folder: Path, name: str, limit: float) -> subprocess.Popen[str]:
    """Start the command with a tracker of broken.py."""
    program = PROGRAM.format(name=name, limit=limit)
    return subprocess.Popen(
        [sys.executable, "-c", program, folder], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_tracker_that_raises_is_a_sentence_and_an_exit_code(tmp_path: Path) -> None:
    ran = started(experiment(tmp_path / "trial", 1), "NoNetwork", 60.0)
    _, said = ran.communicate(timeout=GUARD_S)
    why = "ConnectionError: no route to tracker.example"
    assert said == f"fednode: Fake does not take figures: {why}.\n"
    assert ran.returncode == 6


def test_a_tracker_that_hangs_is_a_sentence_and_an_exit_code(tmp_path: Path) -> None:
    """Its exit handler waits for ever, too, and the command ends all the same."""
    ran = started(experiment(tmp_path / "trial", 1), "HangingAtExit", 0.2)
    _, said = ran.communicate(timeout=GUARD_S)
    assert said.startswith("fednode: Fake did not take figures within 0.2 s.")
    assert ran.returncode == 5


def test_ctrl_c_ends_a_command_whose_tracker_hangs(tmp_path: Path) -> None:
    with started(experiment(tmp_path / "trial", 1), "HangingAtExit", 60.0) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "the tracker hangs\n"
        ran.send_signal(signal.SIGINT)
        try:
            assert ran.wait(GUARD_S) == 130
        finally:
            ran.kill()


def test_what_cannot_be_read_is_refused(
    fednode: Fednode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "shipped", lambda kind: FAKE)
    said = fednode.fault("track", "a", "--to", "tensorboard")
    assert "There is no file peers.yaml" in said
    (tmp_path / "empty").mkdir()
    assert "holds no finished cells" in fednode.fault("track", "empty", "--to", "wandb")
    assert fednode("track", "a", "--to", "aim") == 2
    assert "'aim' is not one of 'tensorboard', 'wandb', 'mlflow'" in fednode.err
