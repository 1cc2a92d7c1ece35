"""What the parent of forked daemons loads; faults are left to the daemons."""

from __future__ import annotations

import atexit
import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest

from fednode import freed
from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.learn import build
from fednode_bootstrap import preload


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is loaded from now on, in order; nothing is."""
    found: list[Any] = []
    monkeypatch.setattr(freed, "use_one_arena", lambda: found.append("arena"))
    monkeypatch.setattr(build, "use_threads", lambda count: found.append(count))
    monkeypatch.setattr(clip, "keep", found.append)
    # Libraries that load meanwhile may register handlers of their own.
    ours = (os._exit, 0)
    monkeypatch.setattr(
        atexit, "register", lambda *what: found.append(what) if what == ours else None
    )
    monkeypatch.setattr(gc, "freeze", lambda: found.append("frozen"))
    return found


def test_the_variable_says_which_settings_the_daemons_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = preload.environment(Path("node.yaml"), ("seed=2",))
    assert json.loads(told[preload.VARIABLE]) == {
        "config": str(tmp_path / "node.yaml"),
        "flags": ["seed=2"],
    }
    assert json.loads(preload.environment(None, ())[preload.VARIABLE])["config"] is None


def test_one_arena_and_one_thread_come_before_the_model(loaded: list[Any]) -> None:
    told = preload.environment(None, ("model.precision=bfloat16", "policy.name=promptfl"))
    preload.load(told[preload.VARIABLE])
    assert loaded == ["arena", 1, ModelSettings(precision="bfloat16"), (os._exit, 0), "frozen"]


def test_daemons_without_a_model_load_none(loaded: list[Any]) -> None:
    preload.load(preload.environment(None, ("tuning.kind=closed-form",))[preload.VARIABLE])
    assert loaded == []


def test_a_fault_of_the_settings_is_left_to_the_daemons(loaded: list[Any]) -> None:
    preload.load(preload.environment(None, ("no.such=1",))[preload.VARIABLE])
    assert loaded == [(os._exit, 0), "frozen"]
