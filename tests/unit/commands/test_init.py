"""`fednode init`: files that work and pin nothing that nobody chose; keys; what to do next."""

from __future__ import annotations

import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from fednode.app.plan import make
from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.commands.init import WHY
from fednode.core.settings import RoundSettings
from fednode.data.base import DataSettings, PartitionSettings
from fednode.registry import policy
from fednode.settings.peers import load_peers
from fednode.settings.read import RECOMMENDED, chosen_of, load_settings
from fednode.shipped import config_file
from tests.unit.commands.run import Fednode
from tests.unit.commands.tuned import draw

AT = ("--address", "10.0.0.7:7100")
LOCAL = ("m", "--nodes", "3")
ROOT = Path(".local/state/fednode/ward")


def live(path: Path) -> dict[str, object]:
    """Return the keys of a file that have a value, by their places."""
    found: dict[str, object] = {}

    def walk(tree: dict[str, object], place: str) -> None:
        for key, value in tree.items():
            if isinstance(value, dict):
                walk(value, f"{place}{key}.")
            elif value is not None:
                found[place + key] = value

    walk(yaml.safe_load(path.read_text()), "")
    return found


def test_it_pins_only_data_model_and_what_was_measured(fednode: Fednode, tmp_path: Path) -> None:
    draw(tmp_path / "it's mine", 1)
    assert fednode("init", "m", "--nodes", "3", "--data", "it's mine") == 0
    text = (tmp_path / "m/node.yaml").read_text()
    assert live(tmp_path / "m/node.yaml") == {
        "data.path": str(tmp_path / "it's mine"),
        "data.shots": 0,
        "model.name": "fednode-mini",
        "policy.name": RECOMMENDED,
    }
    sections = re.findall(r"(?m)^([a-z]+):", text)
    assert sections[:3] == ["data", "model", "policy"]
    key = re.compile(r"(?m)^ *#?([a-z_]+):")  # a key that is not pinned is a comment
    every = re.sub(r"(?ms)^policy:.*?(?=^[a-z])", "", config_file("node.yaml").read_text())
    assert set(key.findall(text)) >= set(key.findall(every)) > {"lr", "keep_best", "deadline_s"}
    commands = [line for line in fednode.out.splitlines() if line.startswith("  fednode start")]
    start, images = "  fednode start --name", "--set data.path=FOLDER"
    assert commands == [f"{start} a", f"{start} b {images}", f"{start} c {images}"]
    assert fednode("init", "built-in", "--nodes", "3") == 0
    assert images not in fednode.out


def test_it_shares_the_built_in_images_out_and_its_comments_are_keys_at_their_defaults(
    fednode: Fednode, tmp_path: Path
) -> None:
    assert fednode("init", "m", "--nodes", "30") == 0
    assert WHY in fednode.out.splitlines()
    peers = load_peers(tmp_path / "m/peers.yaml")
    assert (peers.mesh, len(peers.peers), peers.peers[26].name) == ("m", 30, "n27")
    path = tmp_path / "m/node.yaml"
    text, before = path.read_text(), load_settings(path, {})
    assert before.rounds == RoundSettings(max=0, min_interval_s=60.0)
    assert before.data == DataSettings(partition=PartitionSettings(how="classes"))
    # Every section is there, so no other line changes where one is set.
    path.write_text(text.replace("  #deadline_s: 60.0", "  deadline_s: 7.0"))
    assert load_settings(path, {}).rounds == replace(before.rounds, deadline_s=7.0)


def test_its_file_runs_another_policy_by_one_flag_with_its_own_tuning(
    fednode: Fednode, tmp_path: Path
) -> None:
    for written in ("local", "plan", RECOMMENDED):
        assert fednode("init", written, "--nodes", "3", "--policy", written) == 0
        for name in ("local", "zerodfl", "fedpgp", RECOMMENDED):
            settings = load_settings(tmp_path / written / "node.yaml", {}, [f"policy.name={name}"])
            assert settings.policy.config == chosen_of({"name": name}).config
    assert fednode("init", "m", "--nodes", "3", "--policy", "zerodfl") == 0
    flags = ["policy={name: feddpt, domains: [photo, sketch]}"]
    tuning = load_settings(tmp_path / "m/node.yaml", {}, flags).tuning
    assert (tuning.context_length, tuning.optimizer, tuning.lr) == (16, "adamw", 0.0005)
    assert fednode("init", "n", "--nodes", "3", "--set", "policy.name=promptfl") == 0
    assert WHY not in fednode.out
    settings = load_settings(tmp_path / "m/node.yaml", {}, ["policy.name=promptfl"])
    assert settings.tuning == load_settings(None, {}, ["policy.name=promptfl"]).tuning


@pytest.mark.parametrize("name", ["feddpt", "fedotp", "promptfl", "zerodfl", "plan", RECOMMENDED])
def test_it_writes_the_keys_and_the_tuning_of_a_policy(
    fednode: Fednode, tmp_path: Path, name: str
) -> None:
    assert fednode("init", "m", "--nodes", "3", "--policy", name, "--rounds", "7") == 0
    path, kind = tmp_path / "m/node.yaml", policy(name)
    settings = load_settings(path, {})
    assert (settings.policy.name, settings.rounds.max) == (name, 7)
    assert {key for key in live(path) if key.startswith("policy.")} == {
        "policy.name",
        *(["policy.domains"] if name == "feddpt" else []),
    }
    listed = set(re.findall(r"(?m)^ +#?([a-z_]+):", path.read_text()))
    assert {key.name for key in fields(kind.config_type)} <= listed
    path.write_text(re.sub(r"(?m)^( *)#(?=[a-z_]+: )", r"\1", path.read_text()))
    shown = load_settings(path, {})
    assert {key: getattr(shown.tuning, key) for key in kind.tuning} == dict(kind.tuning)
    for section in ("tuning", "rounds", "limits", "guard", "membership"):
        assert getattr(shown, section) == getattr(settings, section)
    assert shown.policy.config == settings.policy.config


@pytest.fixture
def data(tmp_path: Path) -> tuple[str, str]:
    """Return the words that name a folder of images with which a node starts."""
    draw(tmp_path / "images", 8)
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
        (("there",), "There is a HERE/there already: run this in another folder."),
        ((*LOCAL, "--policy", "zerodlf"), "policy.name is 'zerodlf', which is no policy: did you"),
        ((*LOCAL, "--address", "127.0.0.1:1"), "--nodes makes nodes on this machine alone: leave"),
        ((*LOCAL, "--data", "no such"), "--data HERE/no such does not exist: give a folder with"),
        ((*LOCAL, "--data", "file"), "--data HERE/file is a file: give a folder with one folder"),
        (("ward", "--address", "nowhere:x"), "has no port"),
        (("ward", "--site", "a b"), "--site is 'a b'"),
        (("ward", "--relay", "r.example.org:443"), "--relay is 'r.example.org:443'; use"),
        (("ward", "--relay", "r"), "--relay is 'r': give NAME=HOST:PORT"),
        (("ward", "--address", "relay"), "--address relay needs --relay NAME=HOST:PORT"),
        (("ward", *AT, "--data", "no"), "does not exist"),
        (("ward", *AT, "--data", "images/sea"), "images/sea"),
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
    (tmp_path / "file").touch()
    (tmp_path / "there").mkdir()
    assert said.replace("HERE", str(tmp_path)) in fednode.fault("init", *data, *words)
    made = {path.name for path in tmp_path.iterdir()}
    assert made - {".cache"} == {"images", "file", "there"}


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
