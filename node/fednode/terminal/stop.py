"""Ctrl-C, SIGTERM and SIGHUP while work runs: the first asks it to stop, the second to hurry."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import multiprocessing
import os
import signal
import termios
import time
from collections.abc import Callable, Coroutine, Iterator
from multiprocessing import resource_tracker
from typing import Any, Final, TypeVar

HURRY_EVERY_S: Final = 0.1
GRACE_S: Final = 10.0
Result = TypeVar("Result")


class Interrupted(Exception):
    """The user asked to stop (Ctrl-C, SIGTERM or SIGHUP)."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.exit_code = 128 + number


def call_at_end(take: Callable[[signal.Signals], object]) -> tuple[signal.Signals, ...]:
    """Call a function at each Ctrl-C, SIGTERM and SIGHUP; return those of them that are heard.

    SIGHUP is not heard under nohup, which lets a program outlive its terminal.
    """

    def heard(number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        take(number)

    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    numbers = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, heard, number)
    return numbers


def _leave_terminal() -> None:
    """Write nothing more to a terminal that was closed: each line would be an error."""
    for descriptor in (1, 2):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as fault:
            if fault.args[0] == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


@contextlib.contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Block signals in this thread; processes that it starts in the block never get them.

    For processes of multiprocessing, whose resource tracker lets SIGINT through where it starts.
    """
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Wait until the process that started this one ends, then end this one."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process is a child"
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


async def until_stopped(work: Coroutine[Any, Any, Result], say: Callable[[str], None]) -> Result:
    """Return what the work returns; at Ctrl-C, SIGTERM or SIGHUP cancel it and raise Interrupted.

    At the second signal the work is cancelled again until it is done.
    """
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()

    def take(number: signal.Signals) -> None:
        if not first.done():
            say("Ending all daemons; ask again to end them at once.")
            first.set_result(number)
        elif not second.done():
            second.set_result(number)

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    numbers = call_at_end(take)
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task, first}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task, second}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=HURRY_EVERY_S)
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number] or signal.SIG_DFL)
    raise Interrupted(first.result())
