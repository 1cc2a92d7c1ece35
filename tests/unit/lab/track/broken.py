"""Trackers that fail; the worker process of a test imports them."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from fednode.lab.track.base import Run
from fednode.lab.track.fake import FakeTracker


class NoNetwork(FakeTracker):
    """Cannot begin."""

    def __init__(self, run: Run) -> None:
        raise ConnectionError("no route to tracker.example")


class FullDisk(FakeTracker):
    """Takes nothing, and ends the program that calls it."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Raise."""
        raise SystemExit(f"no space for step {step}")


class Hanging(FakeTracker):
    """Never returns."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Wait for ever."""
        super().log(step, values)
        threading.Event().wait()


class Dying(FakeTracker):
    """Ends its process."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """End the process."""
        os._exit(3)
