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


def test_the_server_knows_the_settings_of_the_daemons_and_nobody_else_sees_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[Any]()
    ensure = "fednode_bootstrap.preload.forkserver.ensure_running"
    monkeypatch.setattr(ensure, lambda: seen.append(json.loads(os.environ[preload.VARIABLE])))
    monkeypatch.chdir(tmp_path)
    preload.start_server(Path("node.yaml"), ("seed=2",))
    preload.start_server(None, ())
    assert seen == [[str(tmp_path / "node.yaml"), ["seed=2"]], [None, []]]
    assert preload.VARIABLE not in os.environ


def test_one_arena_and_one_thread_come_before_the_model(loaded: list[Any]) -> None:
    preload.load('[null, ["model.precision=bfloat16", "policy.name=promptfl"]]')
    assert loaded == ["arena", 1, ModelSettings(precision="bfloat16"), (os._exit, 0), "frozen"]


def test_daemons_without_a_model_load_none(loaded: list[Any]) -> None:
    preload.load('[null, ["tuning.kind=closed-form"]]')
    assert loaded == []


def test_a_fault_of_the_settings_is_left_to_the_daemons(loaded: list[Any]) -> None:
    preload.load('[null, ["no.such=1"]]')
    assert loaded == [(os._exit, 0), "frozen"]
