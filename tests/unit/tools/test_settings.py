"""The files that explain settings: what is committed is what the dataclasses say."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from fednode.app.plan import NodePlan, facts_of
from fednode.cli import COMMANDS
from fednode.core.settings import MergeSettings, RoundSettings
from fednode.errors import ConfigError
from fednode.policies.fedclip import FedCLIPConfig
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import POLICY, Settings, load_settings
from tests.unit.commands.run import Fednode
from tools import commands, settings

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = ROOT / "configs"
NODE_FILES = [
    *(CONFIGS / name for name in ("node.yaml", "demo/node.yaml")),
    *(CONFIGS / f"pacs/{name}.yaml" for name in ("photo", "art_painting", "cartoon", "sketch")),
]
PEER_FILES = [CONFIGS / f"{name}peers.yaml" for name in ("", "pacs/")]


def validator(name: str) -> Draft202012Validator:
    tree = json.loads((CONFIGS / "schema" / f"{name}.json").read_text())
    Draft202012Validator.check_schema(tree)
    return Draft202012Validator(tree)


def test_check_names_stale_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    monkeypatch.setattr(settings, "CONFIGS", tmp_path / "configs")
    assert settings.main(["--check"]) == 1
    assert "configs/node.yaml" in capsys.readouterr().err
    (tmp_path / "docs").mkdir()
    surplus = tmp_path / "configs" / "schema" / "gone.json"
    surplus.parent.mkdir(parents=True)
    surplus.write_text("")
    assert settings.main([]) == 0
    assert not surplus.exists()
    assert settings.main(["--check"]) == 0
    (tmp_path / "configs" / "node.yaml").write_text("seed: 2\n")
    assert settings.main(["--check"]) == 1
    assert "configs/node.yaml: not what the code says" in capsys.readouterr().err


def test_a_text_is_what_stands_below_a_field_and_is_inherited() -> None:
    assert settings.explained(RoundSettings)["deadline_s"].startswith("Longest wait for ")
    texts = settings.explained(FedCLIPConfig)
    assert texts["weights"].startswith("Weight of a node in the mean.")
    assert texts["loss"].startswith("contrastive: the released code's loss")


def test_a_field_without_a_text_is_named() -> None:
    @dataclass
    class Trial:
        """Settings of a trial."""

        known: int = 1
        """A text."""
        silent: int = 2

    assert settings.explained(Trial) == {"known": "A text."}
    with pytest.raises(RuntimeError, match=r"Trial\.silent has no text"):
        list(settings.settings_of(Trial))


def test_what_is_marked_is_what_nodes_compare() -> None:
    """Every setting among the facts of a node is marked, or its text says when it must agree."""
    flags = ["tuning.kind=closed-form", "policy.name=promptfl", "topology.kind=ring"]
    plan = NodePlan("node", load_settings(None, {}, flags), Peers("none"), Path())
    facts = facts_of(plan, NoLearner())  # type: ignore[arg-type]
    for key in facts:
        if key in ("mesh", "backbone", "schema"):  # model.name and model.pretrained: the backbone
            continue
        section = key.partition(".")[0]
        if section in settings.AGREED or key in settings.AGREED:
            continue
        kind: type = Settings if section == key else RoundSettings
        text = settings.explained(kind)[key.rpartition(".")[2]]
        assert "If the nodes of the policy share one state, all nodes need the same" in text
    for key in settings.AGREED - {"model.name", "model.pretrained"}:
        assert any(fact == key or fact.startswith(f"{key}.") for fact in facts), key


class NoLearner:
    backbone = schema = "none"


def test_every_setting_is_on_the_page_once() -> None:
    lines = settings.page().splitlines()
    for section, kind in (("rounds.", RoundSettings), ("policy.merge.", MergeSettings)):
        for one in fields(kind):
            if one.name != "start":
                assert sum(line.startswith(f"| `{section}{one.name}`") for line in lines) == 1
    for one in fields(PeerEntry):
        assert sum(line.startswith(f"| `peers[].{one.name}`") for line in lines) == 1
    assert all(line.count(" | ") >= 3 for line in lines if line.startswith("| `"))


def test_there_are_at_most_170_settings() -> None:
    """A setting more needs a document that says when to choose another value."""
    rows = [line for line in settings.page().splitlines() if line.startswith("| `")]
    assert len(rows) <= 170


def test_every_command_is_on_the_page_with_its_options() -> None:
    rows = {line.split("`")[1]: line for line in commands.page().splitlines() if "fednode" in line}
    said = {usage.split()[1] for usage in rows if usage.startswith("fednode ")}
    assert said == set(COMMANDS)
    assert rows["fednode settings pull [PEER]"].endswith("| `--yes` |")
    assert "`--approve`" in rows["fednode invite [SITE]"]


def test_a_key_that_policies_have_in_common_is_explained_once() -> None:
    lines = settings.page().splitlines()
    for key in settings.common():
        assert sum(line.startswith(f"| `policy.{key}`") for line in lines) == 1
    (optimizer,) = (line for line in lines if line.startswith("| `policy.optimizer`"))
    assert "| `reset`; `keep` for zerodfl, feddpt, fedtpg |" in optimizer
    assert optimizer.endswith("Not for gda, local, plan. |")


def test_words_for_values() -> None:
    assert settings.words(int | None) == "whole number or null"
    assert settings.words(tuple[str, ...]) == "list of texts"
    with pytest.raises(RuntimeError, match="no words"):
        settings.words(dict[str, int])


def test_lines_of_yaml_keep_within_the_width() -> None:
    for text in (settings.node_file(), settings.peers_file()):
        assert max(map(len, text.splitlines())) <= settings.WIDTH


@pytest.mark.parametrize("path", NODE_FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_node_files_fit_their_schema(path: Path) -> None:
    assert list(validator("node").iter_errors(yaml.safe_load(path.read_text()))) == []


@pytest.mark.parametrize("path", PEER_FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_peers_files_fit_their_schema(path: Path) -> None:
    assert list(validator("peers").iter_errors(yaml.safe_load(path.read_text()))) == []


@pytest.mark.parametrize(
    "tree",
    [
        {"sed": 1},
        {"seed": "many"},
        {"rounds": {"mode": "fast"}},
        {"rounds": {"start": {"peer": 1}}},
        {"tuning": {"betas": [0.9]}},
        {"policy": {"recipient": 1}},
        {"policy": {"name": "promptfl", "recipients": 1}},
        {"policy": {"name": "promptfl", "merge": {"rule": "vote"}}},
    ],
    ids=str,
)
def test_the_schema_refuses_what_fednode_refuses(tree: dict[str, Any], tmp_path: Path) -> None:
    assert list(validator("node").iter_errors(tree))
    path = tmp_path / "node.yaml"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(ConfigError):
        load_settings(path, {})


def test_the_schema_knows_the_default_policy_and_leaves_foreign_ones_alone() -> None:
    check = validator("node")
    assert check.is_valid({"policy": {"recipients": 3}})
    assert check.is_valid({"policy": {"name": POLICY, "rows_shared": 2}})
    assert check.is_valid({"policy": {"name": "of-another-package", "anything": 1}})
    assert not check.is_valid({"policy": {"name": "local", "recipients": 3}})


def test_the_schema_has_the_text_of_each_field() -> None:
    tree = settings.schema(Peers)
    assert {key: one["description"] for key, one in tree["properties"].items()} == (
        settings.explained(Peers)
    )


def test_the_command_prints_the_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    fednode = Fednode(capsys)
    for name in ("node", "peers"):
        assert fednode("check", "--schema", name) == 0
        assert fednode.out == (CONFIGS / "schema" / f"{name}.json").read_text()


def test_the_committed_files_are_what_the_code_says() -> None:
    """In a process of its own, whose sets have another order."""
    words = [sys.executable, "-m", "tools.settings", "--check"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
