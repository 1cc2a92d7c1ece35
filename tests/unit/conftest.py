"""What the tests of commands, and of what commands are made of, share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.commands.run import PEERS, Fednode

if TYPE_CHECKING:  # at run time only what needs a model imports torch
    from fednode.app.plan import NodePlan
    from fednode.clip.model import FrozenClip
    from fednode.clip.settings import ModelSettings
    from tests.meshes import Mesh

LOADED: dict[ModelSettings, FrozenClip] = {}


@pytest.fixture
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the embedded model once for all commands; a loaded model is never changed."""
    from fednode.clip import model as clip

    load = clip.load

    def loaded(settings: ModelSettings) -> FrozenClip:
        if settings.pretrained is not None:
            return load(settings)
        if settings not in LOADED:
            LOADED[settings] = load(settings)
        return LOADED[settings]

    monkeypatch.setattr(clip, "load", loaded)


@pytest.fixture
def fednode(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    loaded_once: None,
) -> Fednode:
    """Return the command, in an empty folder that is also the home, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FEDNODE_NAME", raising=False)
    return Fednode(capsys)


@pytest.fixture
def founder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodePlan:
    """Return the plan of a node that founded a mesh, in the folder of its files.

    It has a home of its own: name the fixture `fednode`, which sets another one, before this one.
    """
    from tests.unit.app.founders import MESH, founded

    plan = founded(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path / MESH)
    return plan


@pytest.fixture(scope="session")
def model() -> FrozenClip:
    """Return the tiny frozen model that tests of objectives and learners share."""
    from tests.unit.policies.tiny import frozen

    return frozen()


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    """Return a mesh of certificates; all transports and relays that it makes are closed."""
    from tests.meshes import Mesh

    made = Mesh()
    yield made
    await made.close()


@pytest.fixture
def peers(tmp_path: Path) -> Path:
    """Return a peers.yaml of two nodes, at its default place."""
    path = tmp_path / "peers.yaml"
    path.write_text(PEERS, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with images, and a state directory of a node that ran one round."""
    from tests.unit.commands.tuned import tune_in

    folder = tmp_path_factory.mktemp("node")
    tune_in(folder)
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
