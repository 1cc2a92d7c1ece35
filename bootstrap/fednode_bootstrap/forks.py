"""Start daemons as forks of one process that has imported torch and loaded the model.

Each fork shares the pages of imported modules and of the model with all others, and keeps only the
pages that it writes. So a daemon of a local mesh takes a fraction of the memory of a program that
imports torch for itself. Once that process has loaded everything, which takes as long as the start
of such a program, a daemon starts in a fraction of that time (docs/speed.md, "Start and memory").
The standard library's forkserver (multiprocessing) does the work: it is a process of one thread
that forks on request and passes on the exit status of each child.

A daemon behaves as if it was started as a program: it has a session, a log, an environment and
arguments of its own, its exit status reaches the mesh, and it ends when the mesh ends
(fednode_bootstrap.tether). `ps` shows the command line of the forkserver, and the node's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import runpy
import signal
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Final

from fednode.terminal.stop import held_back
from fednode_bootstrap import preload
from fednode_bootstrap.tether import watch

SUPPORTED: Final = sys.platform == "linux"
"""On other systems a process cannot safely fork after it has loaded torch."""
NAME_BYTES: Final = 15
"""Length of a process's name on Linux."""
# The forkserver belongs to the whole process, and two threads must not read one exit status.
_LOCK: Final = threading.Lock()


class Fork:
    """A forked daemon: what Daemon needs of asyncio.subprocess.Process."""

    def __init__(self, process: ForkServerProcess, tether: Connection) -> None:
        assert process.pid is not None, "the process was started"
        self.pid: int = process.pid
        self.returncode: int | None = None
        self._process, self._tether = process, tether
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(process.sentinel, self._ended)

    async def wait(self) -> int:
        """Wait for the process to end; return its exit status, negative for a signal."""
        await self._over.wait()
        assert self.returncode is not None, "the process ended"
        return self.returncode

    def _ended(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        with _LOCK:
            self._process.join()
        self.returncode = self._process.exitcode
        # If the forkserver itself was killed, the daemon still runs; without its tether it ends.
        self._tether.close()
        self._over.set()


async def launch(module: str, words: Sequence[str], log: Path, loads: Mapping[str, str]) -> Fork:
    """Fork a process that runs a module as a program, with its output appended to a log.

    words: arguments of the program. loads: environment of the first fork's server, which names what
    it loads (fednode_bootstrap.preload); later servers of this process are the first one.
    """
    context = multiprocessing.get_context("forkserver")
    theirs, ours = context.Pipe(duplex=False)
    process = context.Process(
        target=_run,
        args=(theirs, module, tuple(words), str(log), dict(os.environ), str(Path.cwd())),
        name=module,
        daemon=True,
    )
    try:
        await asyncio.to_thread(_start, context, process, loads)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return Fork(process, ours)


def _start(
    context: ForkServerContext, process: ForkServerProcess, loads: Mapping[str, str]
) -> None:
    """Start a process; the first start waits until the server has loaded everything."""
    with _LOCK:
        context.set_forkserver_preload([preload.__name__] if loads else [])
        os.environ.update(loads)
        # A child would import the main module of this process again: megabytes that no daemon needs
        # and, in a script that starts its mesh at the top level, another mesh.
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            # Ctrl-C reaches all processes of a terminal; the server would print a trace of it.
            with held_back(signal.SIGINT):
                process.start()
        finally:
            sys.modules["__main__"] = main
            for name in loads:
                os.environ.pop(name, None)


def _run(
    tether: Connection,
    module: str,
    words: tuple[str, ...],
    log: str,
    environment: dict[str, str],
    folder: str,
) -> None:
    """Become the daemon; runs in the forked process."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(_name(words)[:NAME_BYTES])
    threading.Thread(target=watch, args=(tether.fileno(),), name="tether", daemon=True).start()
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _name(words: Sequence[str]) -> str:
    """Return what `ps` and `top` show: the node's name, if the arguments have one."""
    pairs = dict(itertools.pairwise(words))
    return pairs.get("--name", "fednode")
