"""`fednode init MESH --nodes N` writes files that work, and pins nothing that nobody chose."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from fednode.commands.init import WHY
from fednode.core.settings import RoundSettings
from fednode.data.base import DataSettings, PartitionSettings
from fednode.registry import policy
from fednode.settings.peers import load_peers
from fednode.settings.read import RECOMMENDED, chosen_of, load_settings
from fednode.shipped import config_file
from tests.unit.commands.run import Fednode
from tests.unit.commands.tuned import draw


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
    path.write_text(re.sub(r"(?m)^( *)#(?=[a-z_]+: )", r"\1", text))
    after = load_settings(path, {})
    assert (after.policy.config, after.tuning, after.rounds, after.limits) == (
        (before.policy.config, before.tuning, before.rounds, before.limits)
    )
    # Every section is there, so no other line changes where one is set.
    path.write_text(text.replace("  #deadline_s: 60.0", "  deadline_s: 7.0"))
    assert load_settings(path, {}).rounds == replace(before.rounds, deadline_s=7.0)


def test_another_policy_brings_its_own_tuning(fednode: Fednode, tmp_path: Path) -> None:
    assert fednode("init", "m", "--nodes", "3", "--policy", "zerodfl") == 0
    flags = ["policy={name: feddpt, domains: [photo, sketch]}"]
    tuning = load_settings(tmp_path / "m/node.yaml", {}, flags).tuning
    assert (tuning.context_length, tuning.optimizer, tuning.lr) == (16, "adamw", 0.0005)
    assert fednode("init", "n", "--nodes", "3", "--set", "policy.name=promptfl") == 0
    assert WHY not in fednode.out
    settings = load_settings(tmp_path / "m/node.yaml", {}, ["policy.name=promptfl"])
    assert settings.tuning == load_settings(None, {}, ["policy.name=promptfl"]).tuning


@pytest.mark.parametrize("name", ["feddpt", "fedotp", "promptfl", "local", "zerodfl", "plan"])
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
    assert shown.tuning == settings.tuning
    assert shown.policy.config == settings.policy.config


@pytest.mark.parametrize("policy", ["local", "zerodfl", "fedpgp", RECOMMENDED])
def test_its_file_runs_another_policy_by_one_flag(
    fednode: Fednode, tmp_path: Path, policy: str
) -> None:
    for written in ("local", "zerodfl", "plan", RECOMMENDED):
        assert fednode("init", written, "--nodes", "3", "--policy", written) == 0
        settings = load_settings(tmp_path / written / "node.yaml", {}, [f"policy.name={policy}"])
        assert settings.policy.config == chosen_of({"name": policy}).config


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("m", "--policy", "zerodlf"), "policy.name is 'zerodlf', which is no policy: did you"),
        (("m", "--address", "127.0.0.1:1"), "--nodes makes nodes on this machine alone: leave"),
        (("My Mesh",), "MESH is 'My Mesh'"),
        (("m", "--data", "no such"), "--data HERE/no such does not exist: give a folder with"),
        (("m", "--data", "file"), "--data HERE/file is a file: give a folder with one folder per"),
        (("there",), "There is a HERE/there already: run this in another folder."),
    ],
)
def test_a_wrong_word_is_named_and_nothing_is_made(
    fednode: Fednode, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "there").mkdir()
    fault = fednode.fault("init", "--nodes", "3", *words)
    assert fault.startswith(said.replace("HERE", str(tmp_path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]


@pytest.mark.parametrize("words", ["--rounds -1", "--nodes 0", "--nodes 65", "--wait 0"])
def test_numbers_out_of_range_are_refused(fednode: Fednode, words: str) -> None:
    assert fednode("init", "m", *words.split()) == 2
    assert f"Invalid value for '{words.split()[0]}'" in fednode.err
