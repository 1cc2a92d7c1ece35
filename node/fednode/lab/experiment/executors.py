"""Where cells run: in processes of this machine, or in those of Slurm, Dask or Ray.

Each way is a concurrent.futures.Executor. Its processes take the cells by themselves
(node/fednode/lab/experiment/claims.py), so several executors and commands may work in one folder at
a time. Dask and Ray are found by their own variables, DASK_SCHEDULER_ADDRESS and RAY_ADDRESS;
without these they start processes on this machine. sbatch reads its options from variables
SBATCH_*.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from fednode.errors import ConfigError, Unreachable
from fednode.lab.experiment import claims
from fednode.lab.experiment.workers import Kind
from fednode.learn.build import gpus, use_threads
from fednode.terminal.stop import held_back

JOBS: Final = "slurm"
"""Folder of the files of Slurm's jobs."""
POLL_S: Final = 1.0
"""Time between two looks at Slurm's jobs; jobs submitted within it become one array."""
QUEUE_S: Final = 15.0
"""Time between two looks at Slurm's queue."""
REASON_MAX: Final = 300
"""Most characters of what Dask or Ray says."""
GRACE_S: Final = 60.0
"""Time after which a result that no job is left to write is missing."""
ARRAY_MAX: Final = 1000
"""Most jobs of an array, as Slurm has it by default."""
UNBOUNDED: Final = 1 << 30
_ALONE: Final = threading.Lock()
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pool:
    """An executor. at_once: cells that it runs at once. ahead: most cells that it is given."""

    executor: Executor
    at_once: int
    ahead: int
    local: bool = False

    def submit(self, function: Callable[..., T], *words: Any) -> Future[T]:
        """Let a process call a function, in this process's folder."""
        if self.local:
            return self.executor.submit(function, *words)
        return self.executor.submit(elsewhere, os.getcwd(), function, *words)


def elsewhere(folder: str, function: Callable[..., T], *words: Any) -> T:
    """Call a function on another machine, in a folder, with one thread; one call at a time.

    Dask runs calls in threads of one process, whose folder and memory of features are shared.
    """
    with _ALONE, chdir(folder):
        use_threads(1)
        return function(*words)


@contextmanager
def opened(kind: Kind, workers: int, folder: Path, spread: bool = True) -> Iterator[Pool]:
    """Yield an executor; end what it runs if the block ends by an exception.

    workers: most cells at once, 0 for one a core or, on a cluster, for as many as it takes. folder:
    for Slurm's files. spread: give each process of this machine one GPU, if it has several.
    """
    pool = _OPEN[kind](workers, folder, spread)
    try:
        yield pool
    except BaseException:
        pool.executor.shutdown(wait=False, cancel_futures=True)
        raise
    pool.executor.shutdown()


def gpu_of(number: int, names: Sequence[str]) -> str | None:
    """Return the GPU of a process by its number (0, 1, ...); None if there is nothing to choose."""
    return names[number % len(names)] if len(names) > 1 else None


# This machine ---------------------------------------------------------------------------------


def _local(workers: int, folder: Path, spread: bool) -> Pool:
    count = workers or os.cpu_count() or 1
    if count == 1:
        use_threads(1)
        return Pool(_Here(), 1, 1, local=True)
    return Pool(_Processes(count, gpus() if spread else ()), count, UNBOUNDED, local=True)


class _Here(Executor):
    """Run each call at once, in this process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as fault:
            future.set_exception(fault)
        return future


class _Processes(Executor):
    """A pool of processes, each with one thread; a new pool if one of them was killed."""

    def __init__(self, count: int, names: Sequence[str]) -> None:
        self._count, self._names = count, names
        self._pool = self._new()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with held_back(signal.SIGINT):  # a call may start a process, which must not get Ctrl-C
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except BrokenProcessPool:
                self._pool = self._new()
                return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)
        if cancel_futures:
            for process in multiprocessing.active_children():
                process.terminate()

    def _new(self) -> ProcessPoolExecutor:
        # Spawned, because torch's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        begun = context.Value("i", 0)
        return ProcessPoolExecutor(self._count, context, prepare, (begun, self._names))


def prepare(begun: Any, names: Sequence[str] = ()) -> None:
    """Give each process one thread: they share the processors, and bits do not hang on them.

    begun: counts the processes. names: of the GPUs, one for each process in turn. Ctrl-C reaches
    all processes of a terminal; the first one ends the others. When that one is killed it can end
    nobody, so they watch it.
    """
    with begun.get_lock():
        number, begun.value = begun.value, begun.value + 1
    gpu = gpu_of(number, names)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_threads(1)


def _end(*_: object) -> None:
    claims.release_all()
    os._exit(1)  # a cell under way is made anew by the next run


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of an experiment"
    parent.join()
    _end()


# Dask -----------------------------------------------------------------------------------------


def _dask(workers: int, folder: Path, spread: bool) -> Pool:
    import dask
    from distributed import Client

    address = dask.config.get("scheduler-address", None)
    own = {} if address else {"n_workers": workers or os.cpu_count() or 1, "threads_per_worker": 1}
    try:
        client = Client(address, **own)
    except (OSError, ValueError) as fault:
        raise _silent("dask", "DASK_SCHEDULER_ADDRESS", address, fault) from fault
    count = len(client.scheduler_info(n_workers=-1)["workers"])
    return Pool(_Dask(client), min(count, workers or count) or 1, workers or UNBOUNDED)


class _Dask(Executor):
    def __init__(self, client: Any) -> None:
        self._client, self._executor = client, client.get_executor(pure=False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = self._executor.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait=wait)
        self._client.close()


# Ray ------------------------------------------------------------------------------------------


def _ray(workers: int, folder: Path, spread: bool) -> Pool:
    import ray

    address = os.environ.get("RAY_ADDRESS")
    try:
        ray.init(log_to_driver=False, ignore_reinit_error=True)
    except (OSError, ValueError, RuntimeError) as fault:
        raise _silent("ray", "RAY_ADDRESS", address, fault) from fault
    held = ray.cluster_resources()
    gpus = int(held.get("GPU", 0))
    count = gpus or int(held.get("CPU", 1))
    return Pool(_Ray(1 if gpus else 0), min(count, workers or count) or 1, workers or UNBOUNDED)


class _Ray(Executor):
    """Run each call as a task of Ray, on one processor and, if the cluster has any, one GPU."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._references: list[Any] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        import ray

        remote = ray.remote(num_cpus=1, num_gpus=self._gpus)(fn)
        reference = remote.remote(*args, **kwargs)
        self._references.append(reference)
        future: Future[T] = reference.future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        import ray

        if cancel_futures:
            for reference in self._references:
                ray.cancel(reference)
        ray.shutdown()


def _silent(kind: Kind, variable: str, address: str | None, fault: Exception) -> Unreachable:
    """Return the fault of a cluster that cannot be used."""
    said = " ".join(str(fault).split())[:REASON_MAX]
    place = f"the cluster of {variable} ({address})" if address else "a cluster on this machine"
    remedy = f"start it, or unset {variable}" if address else "use --executor local"
    return Unreachable(f"--executor {kind} cannot use {place}: {said}; {remedy}.")


# Slurm ----------------------------------------------------------------------------------------


def _slurm(workers: int, folder: Path, spread: bool) -> Pool:
    import submitit

    try:
        executor = submitit.SlurmExecutor(folder.absolute() / JOBS)
    except RuntimeError as fault:
        raise ConfigError(
            "--executor slurm finds no program srun on this machine: start the command where jobs "
            "are submitted."
        ) from fault
    # No time is named: the partition's limit, or SBATCH_TIMELIMIT, is in force.
    executor.update_parameters(job_name="fednode", time=None, array_parallelism=workers or 256)
    return Pool(_Slurm(executor), workers or UNBOUNDED, UNBOUNDED)


class _Slurm(Executor):
    """Submit the calls of one second as an array of jobs; a thread waits for all jobs.

    A job has ended when its file of the result is there. A job that has left the queue and has no
    such file for GRACE_S is lost. This needs no accounting (sacct), which many clusters lack.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._new: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._jobs: dict[Future[Any], Any] = {}
        self._seen: dict[Future[Any], float] = {}
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._new.append((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._over.set()
        self._thread.join()
        if cancel_futures and self._jobs:
            ids = [job.job_id for job in self._jobs.values()]
            subprocess.run(["scancel", *ids], check=False)

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._over.wait(POLL_S):
            with self._lock:
                new, self._new = self._new[:ARRAY_MAX], self._new[ARRAY_MAX:]
            if new:
                self._begin(new)
            for future in [waiting for waiting, job in self._jobs.items() if _result(job).exists()]:
                job = self._jobs.pop(future)
                try:
                    future.set_result(job.result())
                except Exception as fault:
                    future.set_exception(fault)
            if time.monotonic() - looked > QUEUE_S:
                looked = time.monotonic()
                self._lose(looked)

    def _begin(self, new: Sequence[tuple[Future[Any], Callable[[], Any]]]) -> None:
        try:
            with self._executor.batch():
                jobs = [self._executor.submit(call) for _, call in new]
        except Exception as fault:
            for future, _ in new:
                future.set_exception(fault)
            return
        for (future, _), job in zip(new, jobs, strict=True):
            self._jobs[future], self._seen[future] = job, time.monotonic()

    def _lose(self, now: float) -> None:
        """End the calls whose jobs have left the queue without a result."""
        command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
        try:
            asked = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return  # Slurm does not answer now
        queued = set(asked.stdout.split())
        for future, job in list(self._jobs.items()):
            if job.job_id in queued:
                self._seen[future] = now
            elif now - self._seen[future] > GRACE_S:
                del self._jobs[future]
                text = f"job {job.job_id} has ended without a result; see {job.paths.stderr}"
                future.set_exception(RuntimeError(text))


def _result(job: Any) -> Path:
    return Path(job.paths.result_pickle)


_OPEN: Final[Mapping[Kind, Callable[[int, Path, bool], Pool]]] = {
    "local": _local,
    "slurm": _slurm,
    "dask": _dask,
    "ray": _ray,
}
