"""Hold both ways to run an experiment to equal tables: processes of this machine, and Dask."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from fednode.transports.ports import free_ports
from tests.unit.lab.experiment.pictures import domains

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        importlib.util.find_spec("distributed") is None,
        reason="distributed is not installed: pip install 'fednode[dask]'",
    ),
]
WAIT_S = 600.0
TABLES = ("scores.csv", "curves.csv", "classes.csv", "confusion.csv")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an experiment of two variants, with paths relative to its folder."""
    place = tmp_path_factory.mktemp("experiment")
    domains(place / "images", images=4)
    tree = {
        "title": "a trial",
        "data": {"path": "images", "shots": 1, "test_images": 2},
        "protocol": {"kind": "in-domain"},
        "rounds": 2,
        "seeds": [1, 2],
        "tuning": {"batch_size": 4, "context_length": 3},
        "methods": [
            {"label": "zero-shot", "policy": "zero-shot"},
            {"label": "mean", "policy": "promptfl"},
        ],
        "vary": {"data.shots": [1, 2]},
    }
    (place / "trial.yaml").write_text(yaml.safe_dump(tree))
    return place / "trial.yaml"


def command(file: Path, *words: object) -> list[str]:
    return [sys.executable, "-m", "fednode.cli", "experiment", file.name, *map(str, words)]


@pytest.fixture(scope="module")
def call(file: Path) -> Callable[..., str]:
    """Return a function that runs the command to its end and returns what it prints."""

    def call(*words: object) -> str:
        ran = subprocess.run(
            command(file, *words),
            cwd=file.parent,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return call


@pytest.fixture(scope="module")
def alone(file: Path, call: Callable[..., str]) -> Path:
    """Return the folder that this machine's pool of processes has filled."""
    call("--out", "alone", "--workers", 2)
    return file.parent / "alone"


def same(one: Path, other: Path) -> None:
    """Compare all tables but the columns of seconds."""
    found = [path for path in sorted(one.rglob("*")) if path.name in TABLES]
    assert len(found) == 1 + 2 * len(TABLES)
    for path in found:
        assert (other / path.relative_to(one)).read_bytes() == path.read_bytes()
    head = [(place / "report.md").read_text() for place in (one, other)]
    assert head[0] == head[1], "the table over all values has no seconds"


def until(holds: Callable[[], Any], *processes: subprocess.Popen[bytes]) -> Any:
    """Return what holds as soon as it does; the processes run until then."""
    end = time.monotonic() + WAIT_S
    while not (found := holds()):
        assert time.monotonic() < end
        for one in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(0.05)
    return found


@contextmanager
def begun(file: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command; end it with the block."""
    with (file.parent / "log").open("a") as log:
        made = subprocess.Popen(command(file, *words), cwd=file.parent, stdout=log, stderr=log)
        try:
            yield made
        finally:
            made.kill()
            made.wait()


def test_a_cluster_of_dask_that_loses_a_worker(file: Path, alone: Path) -> None:
    """A scheduler and two workers, each with two threads and in a folder of its own."""
    out, address = file.parent / "dask", f"tcp://127.0.0.1:{free_ports(1)[0]}"
    program = [sys.executable, "-m"]
    port = address.rpartition(":")[2]
    scheduler = [*program, "distributed.cli.dask_scheduler", "--port", port, "--no-dashboard"]
    worker = [*program, "distributed.cli.dask_worker", address, "--nthreads", "2", "--no-nanny"]
    with contextlib.ExitStack() as held:
        processes = []
        for number, words in enumerate((scheduler, worker, worker)):
            place = file.parent / f"process-{number}"
            place.mkdir()
            log = held.enter_context((place / "log").open("w"))
            made = subprocess.Popen(words, cwd=place, stdout=log, stderr=log)
            held.callback(made.wait)
            held.callback(made.kill)
            processes.append(made)
        with begun(file, "--out", out.name, "--scheduler", address) as whole:
            until(lambda: list(out.rglob("cells/*.json")), whole)
            processes[1].kill()
            assert whole.wait(WAIT_S) == 0
    same(alone, out)
