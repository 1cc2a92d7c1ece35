"""Executors that lose workers, Slurm's queue, and one GPU for each process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fednode.errors import ConfigError, Unreachable
from fednode.lab.experiment import executors, run
from fednode.lab.experiment.cells import Done, Job
from fednode.lab.experiment.executors import Pool, gpu_of, opened
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.run import cells, run_all
from fednode.learn import build
from tests.unit.lab.experiment.test_experiment import write

METHODS = [{"label": "zero-shot", "policy": "zero-shot"}, "local"]
OUTCOME = {"scores": {"photo": {"n": 0.5}}, "seconds": 1.0}


class Lossy(Executor):
    """Run each call at once, but lose the first `losses` of them, as if a worker were killed."""

    def __init__(self, losses: int, fault: Exception) -> None:
        self.losses, self.fault = losses, fault
        self.folders: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.losses -= 1
        if self.losses >= 0:
            future.set_exception(self.fault)
        else:
            self.folders.append(args[0])
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture
def jobs(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Return two cells, which take no time."""
    monkeypatch.setattr(run, "_outcome", lambda *_: OUTCOME)
    found = load_experiment(write(tmp_path / "t.yaml", folder, methods=METHODS, seeds=[1]))
    return [Job(found, one, tmp_path / "out") for one in cells(found)]


def ran(jobs: list[Job], pool: Pool) -> list[Done]:
    return run_all(jobs, pool, lambda _: None, lambda _: None)


def test_a_cell_whose_worker_is_lost_is_run_by_another(jobs: list[Job]) -> None:
    lossy = Lossy(2, RuntimeError("killed"))
    assert [one.fault for one in ran(jobs, Pool(lossy, 1, 1))] == ["", ""]
    assert all(job.path.is_file() for job in jobs)
    assert set(lossy.folders) == {os.getcwd()}, "where relative paths lead to the same files"


def test_a_cell_that_loses_all_its_workers_fails(jobs: list[Job]) -> None:
    done = ran(jobs[:1], Pool(Lossy(3, RuntimeError("node 7\n died")), 1, 1))
    assert done[0].fault == "3 workers were lost with this cell, at last: node 7 died"


def test_a_local_pool_that_breaks_says_why_and_a_defect_is_raised(jobs: list[Job]) -> None:
    done = ran(jobs[:1], Pool(Lossy(1, BrokenProcessPool()), 1, 1, local=True))
    assert "for lack of memory, say; use fewer --workers" in done[0].fault
    with pytest.raises(ZeroDivisionError):
        ran(jobs[:1], Pool(Lossy(1, ZeroDivisionError()), 1, 1, local=True))


class Array:
    """Stand in for submitit: jobs of a batch get numbers; files tell that they have ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.jobs = folder, list[Any]()

    @contextmanager
    def batch(self) -> Iterator[None]:
        yield

    def submit(self, call: Callable[[], Any]) -> Any:
        number = f"9_{len(self.jobs)}"
        place = self.folder / number

        class Submitted:
            job_id = number

            class paths:
                result_pickle = place
                stderr = place.with_suffix(".err")

            def result(self) -> Any:
                return call()

        self.jobs.append(Submitted())
        return self.jobs[-1]


def test_jobs_that_leave_slurm_s_queue_without_a_result_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """squeue names job 9_1 alone: 9_0 has written its result, and 9_2 was killed."""
    squeue = tmp_path / "bin/squeue"
    squeue.parent.mkdir()
    squeue.write_text("#!/bin/sh\necho 9_1\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(squeue.parent), prepend=":")
    for name, value in {"POLL_S": 0.001, "QUEUE_S": 0.0, "GRACE_S": 0.01}.items():
        monkeypatch.setattr(executors, name, value)
    (tmp_path / "9_0").touch()
    slurm = executors._Slurm(Array(tmp_path))
    futures = [slurm.submit(int, one) for one in ("70", "71", "72")]
    assert futures[0].result(30) == 70
    with pytest.raises(RuntimeError, match=r"job 9_2 has ended without a result; see .*9_2\.err"):
        futures[2].result(30)
    assert not futures[1].done()
    (tmp_path / "9_1").touch()
    assert futures[1].result(30) == 71
    slurm.shutdown()


def test_calls_elsewhere_run_one_at_a_time_in_the_caller_s_folder(tmp_path: Path) -> None:
    here, seen, busy = os.getcwd(), set[str](), list[int]()

    def work() -> None:
        busy.append(len(busy))
        seen.add(os.getcwd())
        assert len(busy) == 1
        busy.clear()

    words = (str(tmp_path), work)
    threads = [threading.Thread(target=executors.elsewhere, args=words) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (seen, busy, os.getcwd()) == ({str(tmp_path)}, [], here)


@pytest.mark.parametrize(
    ("names", "given"),
    [
        ((), [None] * 4),
        (("0",), [None] * 4),
        (("0", "1"), ["0", "1", "0", "1"]),
        (("2", "5", "GPU-8f3a"), ["2", "5", "GPU-8f3a", "2"]),
    ],
)
def test_each_process_gets_one_of_several_gpus(
    names: tuple[str, ...], given: list[str | None]
) -> None:
    assert [gpu_of(number, names) for number in range(4)] == given


def test_the_gpus_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8f3a")
    assert build.gpus() == ("3", "GPU-8f3a")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert build.gpus() == ()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert build.gpus() == ("0", "1")


def test_slurm_where_no_slurm_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Submitit:
        @staticmethod
        def SlurmExecutor(folder: Path) -> None:
            raise RuntimeError("no srun")

    monkeypatch.setitem(sys.modules, "submitit", Submitit)
    with (
        pytest.raises(ConfigError, match="--executor slurm finds no program srun"),
        opened("slurm", 0, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("kind", "address", "remedy"),
    [
        ("dask", "tcp://a:1", r"of DASK_SCHEDULER_ADDRESS \(tcp://a:1\): no answer; start it, or"),
        ("ray", "a:1", r"of RAY_ADDRESS \(a:1\): no answer; start it, or unset RAY_ADDRESS"),
        ("ray", None, "a cluster on this machine: no answer; use --executor local"),
    ],
)
def test_a_cluster_that_does_not_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    address: str | None,
    remedy: str,
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise ConnectionError("no\n answer")

    dask = SimpleNamespace(config={"scheduler-address": address})
    monkeypatch.setitem(sys.modules, "dask", dask)
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=silent))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=silent))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(Unreachable, match=remedy), opened(kind, 0, tmp_path):
        pass
