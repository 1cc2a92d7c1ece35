"""Trackers that fail."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping

from fednode.lab.track.base import Run
from tests.contract.fake_tracker import FakeTracker


class NoNetwork(FakeTracker):
    """Cannot begin."""

    def __init__(self, run: Run) -> None:
        raise ConnectionError("no route to tracker.example")


class FullDisk(FakeTracker):
    """Takes one round, and then ends the program that calls it."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Raise."""
        if step > 1:
            raise SystemExit(f"no space for step {step}")
        super().log(step, values)


class Hanging(FakeTracker):
    """Never returns."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Wait for ever."""
        print("the tracker hangs", flush=True)
        threading.Event().wait()


class HangingAtExit(Hanging):
    """Never returns; its exit handler neither. For a process of its own, which must be ended."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Wait for ever."""
        atexit.register(threading.Event().wait)
        super().log(step, values)
