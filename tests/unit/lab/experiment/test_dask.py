"""Hold both ways to run an experiment to equal tables: processes of this machine, and Dask."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

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
EXPERIMENT = {
    "title": "a trial",
    "data": {"path": "images", "shots": 1, "test_images": 2},
    "protocol": {"kind": "in-domain"},
    "rounds": 2,
    "seeds": [1, 2],
    "tuning": {"batch_size": 4, "context_length": 3},
    "methods": [{"label": "zero-shot", "policy": "zero-shot"}, "promptfl"],
    "vary": {"data.shots": [1, 2]},
}
COMMAND = ("fednode.cli", "experiment", "trial.yaml", "--out")


def same(one: Path, other: Path) -> None:
    """Compare all tables but those with a column of seconds."""
    found = [path for path in sorted(one.rglob("*")) if path.name in TABLES]
    assert len(found) == 1 + 2 * len(TABLES)
    for path in [*found, one / "report.md"]:
        assert (other / path.relative_to(one)).read_bytes() == path.read_bytes()


def test_a_cluster_of_dask_that_loses_a_worker(tmp_path: Path) -> None:
    """A scheduler and two workers, each with two threads and in a folder of its own."""
    domains(tmp_path / "images", images=4)
    (tmp_path / "trial.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    port = str(free_ports(1)[0])
    address = f"tcp://127.0.0.1:{port}"
    worker = ("distributed.cli.dask_worker", address, "--nthreads", "2", "--no-nanny")
    with contextlib.ExitStack() as held:

        def begun(place: str, *words: str) -> subprocess.Popen[bytes]:
            (tmp_path / place).mkdir(exist_ok=True)
            log = held.enter_context((tmp_path / f"{len(list(tmp_path.iterdir()))}.log").open("w"))
            made = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=tmp_path / place, stdout=log, stderr=log
            )
            held.callback(made.wait)
            held.callback(made.kill)
            return made

        assert begun(".", *COMMAND, "alone", "--workers", "2").wait(WAIT_S) == 0
        begun("0", "distributed.cli.dask_scheduler", "--port", port, "--no-dashboard")
        first, _ = begun("1", *worker), begun("2", *worker)
        whole, end = begun(".", *COMMAND, "dask", "--scheduler", address), time.monotonic() + WAIT_S
        while not list((tmp_path / "dask").rglob("cells/*.json")):
            assert time.monotonic() < end
            with contextlib.suppress(subprocess.TimeoutExpired):
                whole.wait(0.05)
        first.kill()
        assert whole.wait(WAIT_S) == 0
    same(tmp_path / "alone", tmp_path / "dask")
