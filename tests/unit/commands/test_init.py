"""`fednode init MESH --nodes N` writes files that work, and pins nothing that nobody chose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fednode.app.recommended import CASES, RECOMMENDED
from fednode.commands.init import init
from fednode.core.settings import RoundSettings
from fednode.data.base import DataSettings, PartitionSettings
from fednode.registry import policy
from fednode.settings.peers import load_peers
from fednode.settings.read import chosen_of, load_settings
from fednode.shipped import config_file
from fednode.transports.address import parse
from tests.command_line import named
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
    draw(tmp_path / "images", 1)
    assert fednode("init", "m", "--nodes", "3", "--data", "images") == 0
    text = (tmp_path / "m/node.yaml").read_text()
    assert live(tmp_path / "m/node.yaml") == {
        "data.path": str(tmp_path / "images"),
        "data.shots": 0,
        "model.name": "fednode-mini",
        "policy.name": RECOMMENDED.policy,
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


def test_every_comment_is_a_key_at_its_default(fednode: Fednode, tmp_path: Path) -> None:
    assert fednode("init", "m", "--nodes", "3") == 0
    path = tmp_path / "m/node.yaml"
    before = load_settings(path, {})
    path.write_text(re.sub(r"(?m)^( *)#(?=[a-z_]+: )", r"\1", path.read_text()))
    after = load_settings(path, {})
    assert after.policy.config == before.policy.config
    assert (after.tuning, after.rounds, after.limits) == (
        (before.tuning, before.rounds, before.limits)
    )


def test_it_shares_the_built_in_images_out(fednode: Fednode, tmp_path: Path) -> None:
    assert fednode("init", "m", "--nodes", "3") == 0
    settings = load_settings(tmp_path / "m/node.yaml", {})
    assert settings.rounds == RoundSettings(max=0, min_interval_s=60.0)
    assert settings.data == DataSettings(partition=PartitionSettings(how="classes"))
    assert [peer.name for peer in load_peers(tmp_path / "m/peers.yaml").peers] == ["a", "b", "c"]


def test_a_key_is_set_by_removing_the_mark_of_the_comment(fednode: Fednode, tmp_path: Path) -> None:
    """Every section is there, so no other line changes."""
    assert fednode("init", "m", "--nodes", "3") == 0
    path = tmp_path / "m/node.yaml"
    path.write_text(path.read_text().replace("  #deadline_s: 60.0", "  deadline_s: 7.0"))
    assert load_settings(path, {}).rounds == RoundSettings(
        max=0, min_interval_s=60.0, deadline_s=7.0
    )


@pytest.mark.parametrize("others", CASES)
def test_others_takes_what_was_measured_best(fednode: Fednode, tmp_path: Path, others: str) -> None:
    assert fednode("init", "m", "--nodes", "3", "--others", others) == 0
    settings, case = load_settings(tmp_path / "m/node.yaml", {}), CASES[others]
    assert settings.policy.name == case.policy
    rest = load_settings(None, {}, [f"policy.name={case.policy}"])
    assert (settings.tuning, settings.rounds) == (rest.tuning, rest.rounds)
    assert case.why in fednode.out.splitlines()


def test_a_policy_and_a_case_exclude_each_other(fednode: Fednode) -> None:
    said = fednode.fault(
        "init", "m", "--nodes", "3", "--others", "same-classes", "--policy", "local"
    )
    assert said == ("--others chooses a policy, and --policy names one: give one of the two.")


def test_another_policy_brings_its_own_tuning(fednode: Fednode, tmp_path: Path) -> None:
    assert fednode("init", "m", "--nodes", "3", "--policy", "zerodfl") == 0
    flags = ["policy={name: feddpt, domains: [photo, sketch]}"]
    tuning = load_settings(tmp_path / "m/node.yaml", {}, flags).tuning
    assert (tuning.context_length, tuning.optimizer, tuning.lr) == (16, "adamw", 0.0005)
    settings = load_settings(tmp_path / "m/node.yaml", {}, ["policy.name=promptfl"])
    assert settings.tuning == load_settings(None, {}, ["policy.name=promptfl"]).tuning


@pytest.mark.parametrize("name", ["feddpt", "promptfl", "local", "zerodfl", "plan"])
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
    path.write_text(re.sub(r"(?m)^( *)#(?=[a-z_]+: )", r"\1", path.read_text()))
    shown = load_settings(path, {})
    assert {key: getattr(shown.tuning, key) for key in kind.tuning} == dict(kind.tuning)
    assert shown.tuning == settings.tuning
    assert shown.policy.config == settings.policy.config


@pytest.mark.parametrize("policy", ["local", "zerodfl", "fedpgp", RECOMMENDED.policy])
def test_its_file_runs_another_policy_by_one_flag(
    fednode: Fednode, tmp_path: Path, policy: str
) -> None:
    for written in ("local", "zerodfl", "plan", RECOMMENDED.policy):
        assert fednode("init", written, "--nodes", "3", "--policy", written) == 0
        settings = load_settings(tmp_path / written / "node.yaml", {}, [f"policy.name={policy}"])
        assert settings.policy.config == chosen_of({"name": policy}).config


def test_it_takes_a_folder_a_mesh_ports_and_images(fednode: Fednode, tmp_path: Path) -> None:
    draw(tmp_path / "it's mine", 1)
    words = ("--nodes", "30", "--data", "it's mine", "--port", "7101")
    assert fednode("init", "clinic", *words) == 0
    peers = load_peers(tmp_path / "clinic" / "peers.yaml")
    assert (peers.mesh, len(peers.peers), peers.peers[26].name) == ("clinic", 30, "n27")
    assert [parse(one.address).port for one in peers.peers] == list(range(7101, 7131))
    settings = load_settings(tmp_path / "clinic" / "node.yaml", {})
    assert settings.data == DataSettings(path=str(tmp_path / "it's mine"), shots=0)


def test_a_data_folder_that_is_not_there_is_refused(fednode: Fednode, tmp_path: Path) -> None:
    missing = tmp_path / "no such"
    (tmp_path / "file").write_text("")
    assert fednode.fault("init", "m", "--nodes", "3", "--data", "no such") == (
        f"--data {missing} does not exist: give a folder with one folder per class."
    )
    assert "file is a file: give a folder" in fednode.fault(
        "init", "m", "--nodes", "3", "--data", "file"
    )
    assert not Path("m").exists()


def test_it_replaces_nothing(fednode: Fednode, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    said = fednode.fault("init", "m", "--nodes", "3")
    assert said == f"There is a {tmp_path / 'm'} already: run this in another folder."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "zerodlf"), "policy.name is 'zerodlf', which is no policy: did you mean"),
        (("--rounds", "-1"), "--rounds is -1; give a number, or 0 for no end."),
        (("--port", "65534"), "--port is 65534; for 3 nodes give 1 to 65533, the first of"),
        (("--port", "0"), "--port is 0; for 3 nodes give 1 to 65533"),
    ],
)
def test_a_wrong_word_is_named(fednode: Fednode, words: tuple[str, ...], said: str) -> None:
    assert fednode.fault("init", "m", "--nodes", "3", *words).startswith(said)
    assert not Path("m").exists()


@pytest.mark.parametrize("nodes", ["0", "65"])
def test_too_few_or_too_many_nodes(fednode: Fednode, nodes: str) -> None:
    assert fednode.fault("init", "m", "--nodes", nodes) == f"--nodes is {nodes}; give 1 to 64."


def test_what_does_not_go_with_nodes_is_named(fednode: Fednode) -> None:
    assert "MESH is 'My Mesh'" in fednode.fault("init", "My Mesh", "--nodes", "3")
    said = fednode.fault("init", "m", "--nodes", "3", "--address", "127.0.0.1:1")
    assert said == "--nodes makes nodes on this machine alone: leave --address out."
    assert not Path("m").exists()


def test_its_name_leads_here() -> None:
    assert named("init") is init
