"""`fednode init`: a mesh with the node of this machine: settings, keys, and what to do next."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fednode.app.plan import make
from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.settings.peers import load_peers
from fednode.settings.read import load_settings
from tests.unit.app.founders import images
from tests.unit.commands.run import Fednode


def enough(folder: Path) -> Path:
    """Make a folder of images with which a node starts."""
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        for number in range(8):
            pixels = np.full((8, 8, 3), 20 * number + 3 * len(name + str(number)), np.uint8)
            pixels[number, :, :] = 7 if name == "one" else 200
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def test_a_mesh_is_founded(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fednode = Fednode(capsys)
    data = ("--data", enough(tmp_path / "images"))
    words = ("init", "ward", *data, "--site", "a", "--address", "10.0.0.7:7100")
    assert fednode(*words, "--wait", "3", "--rounds", "5", "--policy", "promptfl") == 0
    assert "cd ward && fednode start" in fednode.out
    assert "fednode invite SITE" in fednode.out
    assert f"Keep a copy of {home}/.local/state/fednode/ward/mesh.key" in fednode.out
    peers = load_peers(tmp_path / "ward" / "peers.yaml")
    assert [(one.name, one.address) for one in peers.peers] == [("a", "10.0.0.7:7100")]
    settings = load_settings(tmp_path / "ward" / "node.yaml", {})
    assert (settings.name, settings.rounds.max, settings.rounds.start.peers) == ("a", 5, 2)
    assert (settings.policy.name, settings.data.shots) == ("promptfl", 0)
    assert "founded a mesh 'ward' already" in fednode.fault(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("Ward",), "MESH is 'Ward'; use small letters"),
        (("ward", "--wait", "0"), "--wait is 0"),
        (("ward", "--address", "nowhere:x"), "has no port"),
        (("ward", "--policy", "gda", "--others", "same-classes"), "give one of the two"),
        (("ward", "--site", "a b"), "--site is 'a b'"),
        (("ward", "--relay", "r.example.org:443"), "--relay is 'r.example.org:443'; use"),
        (("ward", "--relay", "r"), "--relay is 'r': give NAME=HOST:PORT"),
        (("ward", "--address", "relay"), "--address relay needs --relay NAME=HOST:PORT"),
        (("ward", "--port", "7100"), "--port goes with --nodes"),
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
    assert said in Fednode(capsys).fault("init", *words, *data)
    assert not home.exists()


def test_images_that_are_not_there_are_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Fednode(capsys).fault("init", "ward", "--data", "no", "--address", "10.0.0.7:7100")
    assert "does not exist" in said
    assert not home.exists()


def founded_once(tmp_path: Path, fednode: Fednode, site: str = "a", *more: str) -> tuple[str, ...]:
    words: tuple[str, ...] = ("init", "ward", "--data", str(tmp_path / "images"), "--site", site)
    words = (*words, "--address", "10.0.0.7:7100", "--policy", "promptfl", *more)
    assert fednode(*words) == 0, fednode.err
    return words


def test_a_mesh_is_founded_once_and_anew_after_its_two_folders_were_deleted(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enough(tmp_path / "images")
    fednode, root = Fednode(capsys), home / ".local/state/fednode/ward"
    words = founded_once(tmp_path, fednode)
    key = (root / "mesh.key").read_bytes()
    assert f"end its nodes and delete {root} and the folder of its settings" in fednode.fault(
        *words
    )
    assert (root / "mesh.key").read_bytes() == key
    shutil.rmtree(root)
    assert "ward already: run this in another folder" in fednode.fault(*words)
    shutil.rmtree(tmp_path / "ward")
    founded_once(tmp_path, fednode, "b")
    assert (root / "mesh.key").read_bytes() != key


def test_images_of_no_class_found_no_mesh(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flat").mkdir()
    (images(tmp_path / "images") / "one" / "1.png").rename(tmp_path / "flat" / "1.png")
    words = ("init", "ward", "--data", str(tmp_path / "flat"), "--address", "10.0.0.7:7100")
    assert "flat" in Fednode(capsys).fault(*words)
    assert not (home / ".local/state/fednode/ward").exists()
    assert not (tmp_path / "ward").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "ViT-S-32-alt"), "model.pretrained is not set: name the weights of ViT-S-32"),
        (("--model", "anything"), "model.name is 'anything', which is neither fednode-mini nor"),
        (("--model", "/no/such.pt"), "model.name is '/no/such.pt'"),
        (("--model", "local-dir:/no/such"), "/no/such"),
        (("--set", "model.pretrained=/no/such.pt"), "model.pretrained is '/no/such.pt'"),
        (("--set", "model.nmae=x"), "model.nmae"),
        (("--set", "rounds.max=-1"), "rounds.max"),
        (("--set", "policy=gda"), "--set policy=gda cannot be set here: write it into node.yaml"),
        (("--set", "policy=null"), "--set policy=null cannot be set here"),
        (("--set", "rounds=null"), "--set rounds=null cannot be set here"),
        (("--set", "data.partition=null"), "--set data.partition=null cannot be set here"),
        (("--set", "data={partition: 3}"), "--set data={partition: 3} cannot be set here"),
        (("--policy", "promptfl", "--set", "policy.merge=1"), "policy.merge=1 cannot be set here"),
    ],
)
def test_a_model_or_a_setting_that_is_wrong_founds_no_mesh(
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    data = ("--data", enough(tmp_path / "images"), "--address", "10.0.0.7:7100")
    assert said in Fednode(capsys).fault("init", "ward", *data, *words)
    assert not (home / ".local/state/fednode/ward").exists()
    assert not (tmp_path / "ward").exists()


def test_the_founder_chooses_model_weights_and_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = list[ModelSettings]()
    monkeypatch.setattr(clip, "load", loaded.append)
    data = ("--data", enough(tmp_path / "images"), "--address", "10.0.0.7:7100", "--site", "a")
    flags = ("--set", "model.pretrained=openai", "--set", "rounds.max=7")
    fednode = Fednode(capsys)
    assert fednode("init", "ward", *data, "--model", "ViT-B-16", *flags) == 0
    assert "fednode sponsor SITE" in fednode.out
    plan = make(tmp_path / "ward/peers.yaml", tmp_path / "ward/node.yaml", None, (), None)
    model = plan.settings.model
    assert (model.name, model.pretrained, plan.settings.rounds.max) == ("ViT-B-16", "openai", 7)
    assert loaded == [model]


def test_a_node_behind_relays_takes_no_connections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("init", "ward", "--data", enough(tmp_path / "images"), "--site", "a")
    fednode = Fednode(capsys)
    assert fednode(*words, "--relay", "r=r.example.org:443") == 0, fednode.err
    assert "node a at relay" in fednode.out
    assert "fednode invite --out folders r=r.example.org:443" in fednode.out
    peers = load_peers(tmp_path / "ward" / "peers.yaml")
    assert [(one.name, one.address) for one in peers.relays] == [("r", "r.example.org:443")]
    assert [peer.address for peer in peers.peers] == ["relay"]
