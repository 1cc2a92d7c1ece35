"""Executors that lose runs, a scheduler that is not there, and one GPU for each process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fednode.errors import ConfigError, Unreachable
from fednode.lab.experiment import executors, run
from fednode.lab.experiment.cells import Done
from fednode.lab.experiment.executors import Pool, opened
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.run import run_all
from tests.unit.lab.experiment.test_experiment import write

METHODS = [{"label": "zero-shot", "policy": "zero-shot"}, "local"]
OUTCOME = {"scores": {"photo": {"n": 0.5}}, "seconds": 1.0}


class Lossy:
    """Run each call at once, but lose the first `losses` of them, as if a worker were killed."""

    def __init__(self, losses: int, fault: Exception) -> None:
        self.losses, self.fault = losses, fault
        self.folders: list[str] = []

    def __call__(self, function: Callable[..., Any], *words: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.losses -= 1
        if self.losses >= 0:
            future.set_exception(self.fault)
        else:
            self.folders.append(words[0])
            future.set_result(function(*words))
        return future


Run = Callable[[Pool], list[Done]]


@pytest.fixture
def ran(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs two cells, which take no time, in a folder of their own."""
    monkeypatch.setattr(run, "_outcome", lambda *_: OUTCOME)
    found = load_experiment(write(tmp_path / "t.yaml", folder, methods=METHODS, seeds=[1]))
    return lambda pool: run_all(found, tmp_path / "out", pool, lambda _: None)


def test_a_run_that_a_cluster_loses_fails_and_the_others_go_on(ran: Run, tmp_path: Path) -> None:
    """Dask tries other workers before it gives a run up."""
    lossy = Lossy(1, RuntimeError("worker 7\n died"))
    said = "the cluster lost this run: RuntimeError: worker 7 died"
    lost, kept = ran(Pool(lossy, 1))
    assert (lost.fault, kept.fault) == (said, "")
    assert [*(tmp_path / "out/cells").iterdir()] == [kept.cell.path(tmp_path / "out")]
    assert set(lossy.folders) == {os.getcwd()}, "where relative paths lead to the same files"
    assert [one.fault for one in ran(Pool(Lossy(0, RuntimeError()), 1))] == ["", ""]


def test_a_local_pool_that_breaks_says_why_and_a_defect_is_raised(ran: Run) -> None:
    """Of the runs that wait none is lost with the pool."""
    done = ran(Pool(Lossy(1, BrokenProcessPool()), 1, local=True))
    assert "for lack of memory, say; use fewer --workers" in done[0].fault
    assert not done[1].fault
    with pytest.raises(ZeroDivisionError):
        ran(Pool(Lossy(1, ZeroDivisionError()), 1, local=True))


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


def test_the_gpus_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8f3a")
    assert executors.gpus() == ("3", "GPU-8f3a")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert executors.gpus() == ()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert executors.gpus() == ("0", "1")


@pytest.mark.parametrize("fault", [ConnectionError("no\n answer"), ValueError("no answer"), None])
def test_a_scheduler_that_does_not_answer_and_a_machine_without_dask(
    monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    def silent(_: str) -> None:
        assert fault is not None
        raise fault

    there = None if fault is None else SimpleNamespace(Client=silent)
    monkeypatch.setitem(sys.modules, "distributed", there)
    said = r"No scheduler of Dask answers at tcp://a:1: no answer; start it with `dask scheduler`,"
    missing = r"--scheduler needs the package distributed, .* pip install 'fednode\[dask\]', or"
    with (
        pytest.raises((Unreachable, ConfigError), match=missing if fault is None else said),
        opened(0, "tcp://a:1"),
    ):
        pass


@pytest.mark.parametrize(("workers", "most"), [(0, 2), (1, 1)])
def test_a_cluster_gets_all_runs_or_as_many_as_the_user_says(
    ran: Run, monkeypatch: pytest.MonkeyPatch, workers: int, most: int
) -> None:
    """Stand in for Dask by threads; test_dask.py takes a real cluster."""
    closed, given = list[str](), list[int]()

    class Client:
        def __init__(self, address: str) -> None:
            self.address = address

        def get_executor(self, pure: bool) -> ThreadPoolExecutor:
            assert not pure, "each call is a run of its own"
            return ThreadPoolExecutor(1)

        def close(self) -> None:
            closed.append(self.address)

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))
    real = futures.wait

    def counted(running: Any, return_when: str) -> Any:
        given.append(len(running))
        return real(running, return_when=return_when)

    monkeypatch.setattr(run, "wait", counted)
    with opened(workers, "tcp://a:1") as pool:
        assert [one.fault for one in ran(pool)] == ["", ""]
    assert (closed, max(given)) == (["tcp://a:1"], most)
