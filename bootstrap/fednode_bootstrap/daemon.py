"""One daemon as a child process: started, watched, stopped, and never left behind.

On Linux a daemon is a fork of the standard library's fork server (multiprocessing), a process of
one thread that may have loaded torch and the model before (start_server). A fork shares the
pages of modules and of the model with all others, keeps only the pages that it writes, and starts
in a fraction of the time that a program takes (docs/speed.md, "Start and memory"). On other systems
a process cannot safely fork after it has loaded torch, so a daemon is a new interpreter.

A daemon behaves as if it was started as a program: it has a session, a log, an environment and
arguments of its own. However the process that started it ends, kill -9 included, the daemon gets
SIGTERM, and SIGKILL if it still runs after some seconds.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import gc
import json
import multiprocessing
import os
import runpy
import signal
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Final

from fednode.terminal.stop import end_with_parent, held_back

PROGRAM: Final = "fednode.cli"
FORKS: Final = sys.platform == "linux"
TAIL_BYTES: Final = 8192
PRELOAD: Final = "FEDNODE_PRELOAD"
"""Environment variable: JSON list of the path of node.yaml, or null, and the words of --set."""
# Two threads must not change multiprocessing's list of children or read one exit status at once.
_LOCK: Final = threading.Lock()


class Daemon:
    """A module that runs as a program in a child process, with its output in a log file.

    The process has a session of its own, which Ctrl-C in the terminal does not reach: only the mesh
    gets it, and ends its daemons in order.
    """

    def __init__(self, name: str, words: Sequence[str], log: Path, module: str = PROGRAM) -> None:
        """Set up. words: arguments of the program."""
        self.name = name
        self.words = tuple(words)
        self.log = log
        self.exit_code: int | None = None
        """Exit status after the process ended; a negative number is the signal that ended it."""
        self._module = module
        self._process: multiprocessing.process.BaseProcess | None = None
        self._end = asyncio.Event()
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self.running else None

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def running(self) -> bool:
        return self.started and self.exit_code is None

    async def start(self) -> None:
        """Start the process, also after it has ended; output is appended to the log.

        The first fork waits until the fork server has loaded everything. If this is cancelled
        meanwhile, the process is killed as soon as it runs.
        """
        if self.running:
            return
        with self.log.open("ab") as output:
            self._log_start = output.tell()
        given = (self._module, self.words, str(self.log), dict(os.environ), os.getcwd())
        context: Any = multiprocessing.get_context("forkserver" if FORKS else "spawn")
        process = context.Process(target=_run, args=given, name=self.name, daemon=True)
        begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        # A thread of this kind does not keep an interpreter that ends.
        threading.Thread(target=_begin, args=(process, begun), name="start", daemon=True).start()
        try:
            await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(lambda _: process.kill() if process.pid else None)
            raise
        self._process, self.exit_code = process, None
        self._end.clear()
        asyncio.get_running_loop().add_reader(process.sentinel, self._note_end)

    async def ended(self) -> int:
        """Wait for the process to end; return its exit status."""
        if not self.started:
            raise RuntimeError(f"'{self.name}' was never started")
        await self._end.wait()
        assert self.exit_code is not None, "the process ended"
        return self.exit_code

    def signal(self, number: signal.Signals) -> None:
        if (pid := self.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def last_line(self) -> str:
        """Return the last line that this run of the process wrote; "" if there is none."""
        try:
            with self.log.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_start, end - TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _note_end(self) -> None:
        assert self._process is not None, "it was started"
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        with _LOCK:
            self._process.join()
            self.exit_code = self._process.exitcode
            # If the fork server was killed, the daemon still runs; what this closes ends it.
            self._process.close()
        self._end.set()


async def stop(daemons: Sequence[Daemon], grace_s: float) -> None:
    """End processes: SIGTERM, and SIGKILL for those that still run after grace_s.

    If this is cancelled, it does not wait any longer and kills them at once.
    """
    for daemon in daemons:
        daemon.signal(signal.SIGTERM)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await _all_ended(daemons)
    finally:
        for daemon in daemons:
            daemon.signal(signal.SIGKILL)
        await _all_ended(daemons)


async def _all_ended(daemons: Sequence[Daemon]) -> None:
    for daemon in daemons:
        if daemon.running:
            await daemon.ended()


def exit_words(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"


def _begin(process: Any, begun: concurrent.futures.Future[None]) -> None:
    """Start a process unless that was cancelled; runs in a thread of its own."""
    try:
        # Ctrl-C reaches all processes of a terminal; the fork server would print a trace of it.
        with _LOCK, _no_main_module(), held_back(signal.SIGINT):
            if begun.set_running_or_notify_cancel():
                process.start()
                begun.set_result(None)
    except Exception as fault:
        begun.set_exception(fault)


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Hide the main module of this process, which a child would import again.

    That takes megabytes that no daemon needs, and a script that starts its mesh at the top level
    would start another mesh.
    """
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _run(
    module: str, words: tuple[str, ...], log: str, environment: dict[str, str], folder: str
) -> None:
    """Become the daemon; runs in the child process."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    threading.Thread(target=end_with_parent, name="parent", daemon=True).start()
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def start_server(config: Path | None, flags: tuple[str, ...]) -> None:
    """Start the fork server of this process, which loads what daemons of these settings need.

    A server that runs already stays as it is.
    """
    os.environ[PRELOAD] = json.dumps([None if config is None else str(config.resolve()), flags])
    forkserver.set_forkserver_preload([__name__])
    try:
        with held_back(signal.SIGINT):
            forkserver.ensure_running()
    finally:
        del os.environ[PRELOAD]


def load(text: str) -> None:
    """Import what daemons import and load their model; leave faults to the daemons themselves.

    Runs in the fork server. A fork has only the thread that forked, so torch computes with one
    thread here; each daemon sets its own number of threads.
    """
    from fednode.errors import FednodeError

    config, flags = json.loads(text)
    with contextlib.suppress(FednodeError):
        from fednode import registry
        from fednode.settings.read import load_settings

        settings = load_settings(config and Path(config), os.environ, tuple(flags))
        import fednode.app.assemble  # noqa: F401

        if settings.tuning.kind != "torch":
            return
        from fednode.clip import model as clip
        from fednode.freed import use_one_arena
        from fednode.learn.build import use_threads

        use_one_arena()
        use_threads(1)
        registry.prompt_module(settings.policy.name)
        clip.keep(settings.model)
    # Extension modules complain on the terminal if they are unloaded while objects are frozen.
    # Forks do not inherit this, because multiprocessing clears the handlers of a child.
    atexit.register(os._exit, 0)
    gc.collect()
    gc.freeze()  # collections in a daemon do not write to these pages


if PRELOAD in os.environ:
    load(os.environ.pop(PRELOAD))
