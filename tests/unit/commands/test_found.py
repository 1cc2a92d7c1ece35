"""`fednode found`: a folder of settings, keys, and what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.commands import found
from fednode.settings.peers import load_peers
from fednode.settings.read import load_settings
from tests.unit.app.founders import images
from tests.unit.commands.run import Fednode


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def test_a_mesh_is_founded(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fednode = Fednode(capsys)
    data = ("--data", images(tmp_path / "images"))
    words = ("found", "ward", *data, "--site", "a", "--address", "10.0.0.7:7100")
    assert fednode(*words, "--wait", "3", "--rounds", "5", "--policy", "promptfl") == 0
    assert "cd ward && fednode start" in fednode.out
    assert "fednode invite SITE" in fednode.out
    assert f"Keep a copy of {home}/.local/state/fednode/ward/mesh.key" in fednode.out
    peers = load_peers(tmp_path / "ward" / "peers.yaml")
    assert [(one.name, one.address) for one in peers.peers] == [("a", "10.0.0.7:7100")]
    settings = load_settings(tmp_path / "ward" / "node.yaml", {})
    assert (settings.name, settings.rounds.max, settings.rounds.start.peers) == ("a", 5, 2)
    assert (settings.policy.name, settings.data.shots) == ("promptfl", 0)
    assert "There is a" in fednode.fault(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("Ward",), "MESH is 'Ward'; use small letters"),
        (("ward", "--wait", "0"), "--wait is 0"),
        (("ward", "--address", "nowhere:x"), "has no port"),
        (("ward", "--policy", "gda", "--others", "same-classes"), "give one of the two"),
        (("ward", "--site", "a b"), "--site is 'a b'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(
    tmp_path: Path,
    home: Path,
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = ("--data", images(tmp_path / "images"))
    assert said in Fednode(capsys).fault("found", *words, *data)
    assert not home.exists()
    assert found.found.name == "found"


def test_images_that_are_not_there_are_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Fednode(capsys).fault("found", "ward", "--data", "no", "--address", "10.0.0.7:7100")
    assert "does not exist" in said
    assert not home.exists()
