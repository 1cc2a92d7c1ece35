"""Hold all ways to run an experiment to equal tables: processes, workers, Dask, Ray and Slurm.

Dask, Ray and submitit are no development packages. Install them into a folder of their own (pip
install --target FOLDER distributed ray submitit) and name it in FEDNODE_EXECUTORS. Slurm's daemons
must run on this machine (CONTRIBUTING.md says how to start them).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.lab.experiment.pictures import domains

pytestmark = pytest.mark.slow
WAIT_S = 600.0
TABLES = ("scores.csv", "curves.csv", "classes.csv", "confusion.csv", "classes.md")
PLACE = os.environ.get("FEDNODE_EXECUTORS", "")
# Packages of that folder come behind all installed ones, in every process.
START = f"""
import sys
sys.path.append({PLACE!r})
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return variables for commands: packages of the folder are found behind all others."""
    place = tmp_path_factory.mktemp("site")
    (place / "sitecustomize.py").write_text(START if PLACE else "")
    # Ray's workers would get hardly any time beside other programs.
    return {**os.environ, "PYTHONPATH": str(place), "RAY_worker_niceness": "0"}


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
def call(file: Path, environment: dict[str, str]) -> Callable[..., str]:
    """Return a function that runs the command to its end and returns what it prints."""

    def call(*words: object) -> str:
        ran = subprocess.run(
            command(file, *words),
            cwd=file.parent,
            env=environment,
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


def needed(package: str) -> None:
    """Skip the test if a package is not installed, here or in the folder."""
    spec = importlib.util.find_spec(package)
    if spec is None and not (PLACE and (Path(PLACE) / package / "__init__.py").is_file()):
        pytest.skip(f"{package} is not installed; see the head of this file")


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
def begun(
    file: Path, environment: dict[str, str], *words: object
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command; end it with the block."""
    with (file.parent / "log").open("a") as log:
        made = subprocess.Popen(
            command(file, *words), cwd=file.parent, env=environment, stdout=log, stderr=log
        )
        try:
            yield made
        finally:
            made.kill()
            made.wait()


def claims(out: Path) -> list[Path]:
    return list(out.rglob("*.claim-1"))


def test_two_workers_and_one_that_is_killed(
    file: Path, environment: dict[str, str], call: Callable[..., str], alone: Path
) -> None:
    """The killed one's cell is done by another, once its claim is too old."""
    out = file.parent / "workers"
    words = ("--out", out.name, "--workers", 1, "--worker")
    with begun(file, environment, *words) as first:
        (claim,) = until(lambda: claims(out), first)
        first.send_signal(signal.SIGKILL)
        first.wait()
    cell = claim.with_suffix("")
    assert claim.read_text().endswith(f":{first.pid}")
    assert not cell.exists()
    with begun(file, environment, *words) as second, begun(file, environment, *words) as third:
        until(lambda: len(list(out.rglob("cells/*.json"))) > 1, second)
        assert not cell.exists(), "its claim may be renewed"
        os.utime(claim, (1.0, 1.0))
        assert second.wait(WAIT_S) == third.wait(WAIT_S) == 0
    assert cell.exists()
    assert not list(out.rglob("*.claim-*"))
    assert not list(out.rglob("report.md"))
    assert "8 of 8 runs were there from before" in call("--out", out.name)
    same(alone, out)


def test_a_worker_that_is_ended_gives_its_cells_back(
    file: Path, environment: dict[str, str]
) -> None:
    """Processes of its pool hold the claims."""
    out = file.parent / "ended"
    with begun(file, environment, "--out", out.name, "--workers", 2, "--worker") as one:
        until(lambda: len(claims(out)) == 2, one)
        one.send_signal(signal.SIGTERM)
        assert one.wait(WAIT_S) == 128 + signal.SIGTERM
        assert not claims(out)


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_cluster_on_this_machine_and_a_worker_of_it_that_is_killed(
    file: Path, environment: dict[str, str], call: Callable[..., str], alone: Path, kind: str
) -> None:
    needed({"dask": "distributed"}.get(kind, kind))
    out = file.parent / kind
    words = ("--out", out.name, "--executor", kind, "--workers", 2)
    with begun(file, environment, *words) as whole:
        claim = until(lambda: claims(out), whole)[0]
        holder = until(claim.read_text, whole)
        os.kill(int(holder.rpartition(":")[2]), signal.SIGKILL)
        cell = claim.with_suffix("")
        until(lambda: len(list(out.rglob("cells/*.json"))) > 0, whole)
        assert not cell.exists()
        os.utime(claim, (1.0, 1.0))
        assert whole.wait(WAIT_S) == 0
    assert not list(out.rglob("*.claim-*"))
    same(alone, out)


def test_a_cluster_of_dask_that_runs_already(
    file: Path, environment: dict[str, str], alone: Path
) -> None:
    """A scheduler and two workers, each with two threads and in a folder of its own."""
    needed("distributed")
    out, address = file.parent / "running", "tcp://127.0.0.1:28786"
    program = [sys.executable, "-m"]
    scheduler = [*program, "distributed.cli.dask_scheduler", "--port", "28786", "--no-dashboard"]
    worker = [*program, "distributed.cli.dask_worker", address, "--nthreads", "2"]
    with contextlib.ExitStack() as held:
        for number, words in enumerate((scheduler, worker, worker)):
            place = file.parent / f"process-{number}"
            place.mkdir()
            log = held.enter_context((place / "log").open("w"))
            made = subprocess.Popen(words, cwd=place, env=environment, stdout=log, stderr=log)
            held.callback(made.wait)
            held.callback(made.terminate)
        found = {**environment, "DASK_SCHEDULER_ADDRESS": address}
        with begun(file, found, "--out", out.name, "--executor", "dask") as whole:
            assert whole.wait(WAIT_S) == 0
    same(alone, out)


def test_slurm(
    file: Path, environment: dict[str, str], call: Callable[..., str], alone: Path
) -> None:
    """Jobs by submitit, one of which is killed; then shares of an array by sbatch."""
    needed("submitit")
    if shutil.which("sinfo") is None or subprocess.run(["sinfo"], capture_output=True).returncode:
        pytest.skip("Slurm does not run here; see the head of this file")
    out, shares = file.parent / "slurm", file.parent / "shares"
    with begun(file, environment, "--out", out.name, "--executor", "slurm") as whole:
        claim = until(lambda: claims(out), whole)[0]
        holder = until(claim.read_text, whole)
        os.kill(int(holder.rpartition(":")[2]), signal.SIGKILL)
        os.utime(claim, (1.0, 1.0))
        assert whole.wait(WAIT_S) == 0
    same(alone, out)
    words = command(file, "--out", shares.name, "--shard", "slurm", "--workers", 1)
    script = f"#!/bin/sh\nexec {' '.join(words)}\n"
    subprocess.run(
        ["sbatch", "--wait", "--array=1-3", "--output=shares.log"],
        cwd=file.parent,
        env=environment,
        input=script,
        text=True,
        check=True,
        timeout=WAIT_S,
    )
    assert "8 of 8 runs were there from before" in call("--out", shares.name)
    same(alone, shares)
