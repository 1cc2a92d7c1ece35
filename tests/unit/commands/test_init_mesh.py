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
from tests.unit.commands.run import Fednode

AT = ("--address", "10.0.0.7:7100")
ROOT = Path(".local/state/fednode/ward")


@pytest.fixture
def data(tmp_path: Path) -> tuple[str, str]:
    """Return the words that name a folder of images with which a node starts."""
    for name in ("one", "two"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(8):
            pixels = np.full((8, 8, 3), 20 * number + 3 * len(name + str(number)), np.uint8)
            pixels[number, :, :] = 7 if name == "one" else 200
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    return "--data", str(tmp_path / "images")


def test_a_mesh_is_founded_once_and_anew_after_its_two_folders_were_deleted(
    fednode: Fednode, tmp_path: Path, data: tuple[str, str]
) -> None:
    words = ("init", "ward", *data, "--site", "a", *AT)
    assert fednode(*words, "--wait", "3", "--rounds", "5", "--policy", "promptfl") == 0
    assert "cd ward && fednode start" in fednode.out
    assert "fednode invite SITE" in fednode.out
    assert f"Keep a copy of {tmp_path / ROOT}/mesh.key" in fednode.out
    peers = load_peers(Path("ward/peers.yaml"))
    assert [(one.name, one.address) for one in peers.peers] == [("a", "10.0.0.7:7100")]
    settings = load_settings(Path("ward/node.yaml"), {})
    assert (settings.name, settings.rounds.max, settings.rounds.start.peers) == ("a", 5, 2)
    assert (settings.policy.name, settings.data.shots) == ("promptfl", 0)
    said = fednode.fault(*words)
    assert "founded a mesh 'ward' already" in said
    assert f"end its nodes and delete {tmp_path / ROOT} and the folder of its settings" in said
    key = (ROOT / "mesh.key").read_bytes()
    shutil.rmtree(ROOT)
    assert "ward already: run this in another folder" in fednode.fault(*words)
    shutil.rmtree("ward")
    assert fednode(*words) == 0
    assert (ROOT / "mesh.key").read_bytes() != key


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("Ward",), "MESH is 'Ward'; use small letters"),
        (("ward", "--address", "nowhere:x"), "has no port"),
        (("ward", "--site", "a b"), "--site is 'a b'"),
        (("ward", "--relay", "r.example.org:443"), "--relay is 'r.example.org:443'; use"),
        (("ward", "--relay", "r"), "--relay is 'r': give NAME=HOST:PORT"),
        (("ward", "--address", "relay"), "--address relay needs --relay NAME=HOST:PORT"),
        (("ward", *AT, "--data", "no"), "does not exist"),
        (("ward", *AT, "--data", "images/one"), "images/one"),
        (("ward", *AT, "--model", "ViT-S-32-alt"), "model.pretrained is not set: name the weights"),
        (("ward", *AT, "--model", "anything"), "model.name is 'anything', which is neither"),
        (("ward", *AT, "--model", "/no/such.pt"), "model.name is '/no/such.pt'"),
        (("ward", *AT, "--model", "local-dir:/no/such"), "/no/such"),
        (("ward", *AT, "--set", "model.pretrained=/no/such.pt"), "model.pretrained is '/no/such.p"),
        (("ward", *AT, "--set", "model.nmae=x"), "--set model.nmae=x: unknown key 'model.nmae'"),
        (("ward", *AT, "--set", "rounds.max=-1"), "rounds.max is -1; it must be at least 0."),
        (("ward", *AT, "--set", "policy=gda"), "policy is 'gda'; it must be a section."),
        (("ward", *AT, "--set", "policy={}"), "--set policy={} sets nothing: name a key"),
        (("ward", *AT, "--set", "policy=null"), "--set policy=null cannot be set here: write it"),
        (("ward", *AT, "--set", "data={partition: 3}"), "data.partition is 3; it must be a sectio"),
        (("ward", *AT, "--set", "data.rename={a: b}"), "--set data.rename={a: b} cannot be set he"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(
    fednode: Fednode, tmp_path: Path, data: tuple[str, str], words: tuple[str, ...], said: str
) -> None:
    assert said in fednode.fault("init", *data, *words)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".cache"] == ["images"]


def test_the_founder_chooses_model_weights_and_settings(
    fednode: Fednode, data: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = list[ModelSettings]()
    monkeypatch.setattr(clip, "load", loaded.append)
    flags = ("--set", "model.pretrained=openai", "--set", "rounds.max=7")
    words = ("init", "ward", *data, *AT, "--site", "a", "--model", "ViT-B-16", *flags)
    assert fednode(*words) == 0, fednode.err
    assert "fednode sponsor SITE" in fednode.out
    plan = make(Path("ward/peers.yaml"), Path("ward/node.yaml"))
    model = plan.settings.model
    assert (model.name, model.pretrained, plan.settings.rounds.max) == ("ViT-B-16", "openai", 7)
    assert loaded == [model]


def test_a_node_behind_relays_takes_no_connections(fednode: Fednode, data: tuple[str, str]) -> None:
    words = ("init", "ward", *data, "--site", "a", "--relay", "r=r.example.org:443")
    assert fednode(*words) == 0, fednode.err
    assert "node a at relay" in fednode.out
    assert "fednode invite --out folders r=r.example.org:443" in fednode.out
    peers = load_peers(Path("ward/peers.yaml"))
    assert [(one.name, one.address) for one in peers.relays] == [("r", "r.example.org:443")]
    assert [peer.address for peer in peers.peers] == ["relay"]
