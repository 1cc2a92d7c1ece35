"""A run, a tracker that writes lines of JSON, and what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fednode.lab.track.base import Run
from fednode.lab.track.trackers import Shipped

FAKE = Shipped("Fake", "tests.contract.fake_tracker:FakeTracker", "json")


def broken(name: str) -> Shipped:
    """Return a tracker of broken.py."""
    return Shipped("Fake", f"tests.unit.lab.track.broken:{name}", "json")


def lines(path: Path) -> list[Any]:
    """Return the lines that the fake tracker wrote."""
    return [json.loads(one) for one in path.read_text().splitlines()]


def logged(path: Path) -> list[int]:
    """Return the steps that the fake tracker took, in order."""
    return [one[1] for one in lines(path) if one[0] == "log"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(name="node-1", group="m", folder=tmp_path, settings={"seed": 1})
