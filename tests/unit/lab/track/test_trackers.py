"""The trackers that fednode knows, and the sentence on a missing package."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.lab.track import trackers
from fednode.lab.track.trackers import Shipped, shipped
from tests.contract.fake_tracker import FakeTracker


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for kind in trackers.TRACKERS:
        monkeypatch.setitem(trackers.TRACKERS, kind, Shipped("X", "x:X", "no_such_package"))
        with pytest.raises(ConfigError) as caught:
            shipped(kind)
        assert str(caught.value) == (
            f"The tracker {kind} needs the package no_such_package, which is not installed: run "
            f"pip install 'fednode[{kind}]'."
        )
    # W&B makes a folder of this name where it runs; it is no package.
    (tmp_path / "no_such_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="is not installed"):
        shipped("wandb")


def test_a_tracker_is_named_by_its_module_and_class() -> None:
    assert Shipped("Fake", "tests.contract.fake_tracker:FakeTracker", "json").load() is FakeTracker
