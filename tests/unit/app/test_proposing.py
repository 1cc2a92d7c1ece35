"""A proposed document: the settings in force, with what its sponsor changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fednode.app.plan import under
from fednode.app.proposing import proposed, signed
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity.document import digest_of, read
from fednode.settings.agreed import agreed
from tests.unit.app.documents import document
from tests.unit.app.founders import MESH, founded


def test_a_change_is_signed_with_the_nodes_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    before = digest_of(document(plan, 1))
    said = proposed(plan, before, 2, 9, ("rounds.max=30", "policy.wire_dtype=float32"))
    assert said.settings["rounds"]["max"] == 30
    assert said.settings["policy"] == {"name": "promptfl", "wire_dtype": "float32"}
    assert {key: value for key, value in said.settings.items() if key not in ("rounds", "policy")}
    proof = signed(plan, said)
    mesh_key = keys.read_public(str(plan.peers.mesh_key))
    found = read(proof, mesh_key, lambda _: False, MESH, said.issued)
    assert (found.number, found.start, found.previous, found.signer) == (2, 9, before, "a")
    assert under(plan, found).settings.rounds.max == 30


def test_another_policy_comes_with_what_it_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    said = proposed(plan, "", 2, 9, ("rounds.max=7",), "fedmaple").settings
    assert said["policy"] == {"name": "fedmaple"}
    assert said["rounds"]["max"] == 7
    assert (
        said["tuning"]
        == agreed(under(plan, proposed(plan, "", 2, 9, (), "fedmaple")).settings)["tuning"]
    )
    assert said["tuning"] != agreed(plan.settings)["tuning"]


def test_nothing_given_is_the_settings_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    assert proposed(plan, "", 2, 9).settings == agreed(plan.settings)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("data.path=/x", r"data.path is each site's own, and sites share seed, model.name"),
        ("tuning.lr=1", r"tuning.lr is each site's own"),
        ("rounds.max", "has no '='"),
        ("rounds.max=-1", r"rounds.max is -1"),
        ("policy.name=nothing", "nothing"),
    ],
)
def test_what_is_not_shared_or_not_valid_is_not_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        proposed(founded(tmp_path, monkeypatch), "", 2, 9, (flag,))


def test_a_file_of_the_model_stays_each_sites_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDNODE_MODEL__NAME", "ViT-B-16")
    monkeypatch.setenv("FEDNODE_MODEL__PRETRAINED", "/models/own.pt")
    plan = founded(tmp_path, monkeypatch)
    said = proposed(plan, "", 2, 9, ("rounds.max=8",)).settings
    assert said["model"] == {"name": "ViT-B-16", "pretrained": "FILE"}


def test_a_node_without_the_right_to_admit_proposes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    (plan.state / "admission" / "right").unlink()
    with pytest.raises(ConfigError, match="a admits no sites, so it proposes no settings"):
        signed(plan, proposed(plan, "", 2, 9))
    listed = replace(plan, peers=replace(plan.peers, sponsors=()))
    with pytest.raises(
        ConfigError, match=r"may sign settings, because peers\.yaml names no sponsor"
    ):
        signed(listed, proposed(plan, "", 2, 9))
