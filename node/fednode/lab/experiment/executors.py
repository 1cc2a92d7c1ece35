"""Where cells run: in processes of this machine, or on the workers of a Dask cluster.

A cluster's workers need the data and weights under the same paths as this machine. They return each
outcome to the command, which writes the cell's file. If a worker is lost, Dask gives its cell to
another worker.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fednode.errors import ConfigError, Unreachable
from fednode.learn.build import use_threads
from fednode.terminal.stop import end_with_parent, held_back

REASON_MAX: Final = 300
"""Most characters of what Dask says."""
UNBOUNDED: Final = 1 << 30
_ALONE: Final = threading.Lock()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pool:
    """Where cells run. call: as an executor's submit; at_once: how many cells it is given."""

    call: Callable[..., Future[Any]]
    at_once: int
    local: bool = False

    def submit(self, function: Callable[..., T], *words: Any) -> Future[T]:
        """Let a process call a function, in this process's folder."""
        if self.local:
            return self.call(function, *words)
        return self.call(elsewhere, os.getcwd(), function, *words)


def elsewhere(folder: str, function: Callable[..., T], *words: Any) -> T:
    """Call a function on another machine, in a folder, with one thread; one call at a time.

    Dask runs calls in threads of one process, whose folder and memory of features are shared.
    """
    with _ALONE, chdir(folder):
        use_threads(1)
        return function(*words)


@contextmanager
def opened(workers: int, scheduler: str | None = None, spread: bool = True) -> Iterator[Pool]:
    """Yield an executor; end what it runs if the block ends by an exception.

    workers: most cells at once, 0 for one a core or, on a cluster, for as many as it takes.
    scheduler: the address of Dask's scheduler; None for processes of this machine. spread: give
    each process of this machine one GPU, if it has several.
    """
    with _dask(workers, scheduler) if scheduler else _processes(workers, spread) as pool:
        yield pool


def gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(gpu.strip() for gpu in named.split(",") if gpu.strip())
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))


# This machine ---------------------------------------------------------------------------------


@contextmanager
def _processes(workers: int, spread: bool) -> Iterator[Pool]:
    """Yield a pool of processes of this machine, each with one thread; this one if it is alone."""
    count = workers or os.cpu_count() or 1
    if count == 1:
        use_threads(1)
        yield Pool(_call, 1, local=True)
        return
    names = gpus() if spread else ()

    def new_pool() -> ProcessPoolExecutor:
        # Spawned, because torch's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        begun = context.Value("i", 0)
        return ProcessPoolExecutor(count, context, prepare, (begun, names))

    pool = new_pool()

    def submit(function: Callable[..., T], *words: Any) -> Future[T]:
        nonlocal pool
        with held_back(signal.SIGINT):  # a call may start a process, which must not get Ctrl-C
            try:
                return pool.submit(function, *words)
            except BrokenProcessPool:  # one of the processes was killed
                pool = new_pool()
                return pool.submit(function, *words)

    try:
        yield Pool(submit, count, local=True)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    pool.shutdown()


def _call(function: Callable[..., T], *words: Any) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(function(*words))
    except Exception as fault:
        future.set_exception(fault)
    return future


def prepare(begun: Any, names: Sequence[str] = ()) -> None:
    """Give each process one thread: they share the processors, and bits do not hang on them.

    begun: counts the processes. names: of the GPUs, one for each process in turn. Ctrl-C reaches
    all processes of a terminal; the first one ends the others. When that one is killed it can end
    nobody, so they watch it.
    """
    with begun.get_lock():
        number, begun.value = begun.value, begun.value + 1
    if len(names) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = names[number % len(names)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A cell under way is made anew by the next run.
    threading.Thread(target=end_with_parent, daemon=True).start()
    use_threads(1)


# Dask -----------------------------------------------------------------------------------------


@contextmanager
def _dask(workers: int, scheduler: str) -> Iterator[Pool]:
    try:
        from distributed import Client
    except ImportError as missing:
        raise ConfigError(
            "--scheduler needs the package distributed, which is not installed: run "
            "pip install 'fednode[dask]', or leave --scheduler out."
        ) from missing
    try:
        client = Client(scheduler)
    except (OSError, ValueError) as fault:
        said = " ".join(str(fault).split())[:REASON_MAX]
        raise Unreachable(
            f"No scheduler of Dask answers at {scheduler}: {said}; start it with `dask scheduler`, "
            "or leave --scheduler out."
        ) from fault
    try:
        yield Pool(client.get_executor(pure=False).submit, workers or UNBOUNDED)
    finally:
        client.close()
