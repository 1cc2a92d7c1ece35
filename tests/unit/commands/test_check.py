"""`fednode check`: all that is wrong in one list; a fault is exit code 2, a note is not."""

from __future__ import annotations

import errno
import json
import re
import socket
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from click.testing import CliRunner

from fednode.app import check_peers
from fednode.app.check_peers import _clock, peer_findings, port_findings, proxy_of
from fednode.app.plan import NodePlan, facts_of, learner_of, make
from fednode.clip.settings import ModelSettings
from fednode.commands.check import check
from fednode.commands.model import NEEDS
from fednode.core.types import EMPTY, PolicyState, Snapshot
from fednode.learn.quadratic import QuadraticLearner
from fednode.policies.zerodfl import ZeroDFLConfig
from fednode.storage.disk import Disk
from fednode.storage.store import Store
from fednode.transports.ports import free_ports
from fednode.wire.gen import status_pb2
from tests.unit.clip import folders
from tests.unit.commands import canned
from tests.unit.commands.run import Fednode
from tests.unit.commands.tuned import draw

QUICK = ("--set", "tuning.kind=closed-form")
GATE_OFF = ZeroDFLConfig().caution


def test_nothing_wrong(fednode: Fednode, peers: Path, tmp_path: Path) -> None:
    assert fednode("check", "--peers", peers, "--name", "a", *QUICK) == 0
    assert list(tmp_path.iterdir()) == [peers], "it leaves nothing behind"
    assert "policy.admit_rise is null, so this node takes over rows (context vectors" in GATE_OFF
    assert fednode.out.splitlines() == [
        f"note: {GATE_OFF}",
        "note: b at 127.0.0.1:7192 does not answer yet.",
        "Nothing is wrong.",
    ]
    assert fednode("check", "--peers", peers, "--name", "a", "--format", "json", *QUICK) == 0
    assert json.loads(fednode.out) == [
        {"level": "note", "text": GATE_OFF},
        {"level": "note", "text": "b at 127.0.0.1:7192 does not answer yet."},
    ]


def test_check_and_start_read_the_files_of_this_folder(
    fednode: Fednode, peers: Path, tmp_path: Path
) -> None:
    (tmp_path / "node.yaml").write_text("tuning: {kind: closed-form}\n")
    assert fednode("check", "--name", "a") == 0
    assert "note: b at 127.0.0.1:7192 does not answer yet." in fednode.out.splitlines()
    assert fednode("check", "--name", "z") == 2
    assert "No peer is called 'z'" in fednode.out
    (tmp_path / "node.yaml").write_text("sed: 1\n")
    for command in ("check", "start"):
        assert fednode(command, "--name", "a", *QUICK) == 2
        said = fednode.out + fednode.err
        assert "node.yaml, line 1: unknown key 'sed'; did you mean 'seed'?" in said
    assert "The settings are those of ./node.yaml." in fednode.err


def test_faults_of_both_files_come_together(fednode: Fednode, peers: Path, tmp_path: Path) -> None:
    peers.write_text(peers.read_text().replace("name: b", "name: a"))
    config = tmp_path / "node.yaml"
    config.write_text("sed: 1\nrounds: {max: -1}\n")
    assert fednode("check", "--peers", peers, "--config", config, *QUICK) == 2
    lines = fednode.out.splitlines()
    assert set(lines[:2]) == {
        f"fault: {config}, line 1: unknown key 'sed'; did you mean 'seed'?",
        f"fault: {config}, line 2: rounds.max is -1; it must be at least 0.",
    }
    assert "the name 'a' stands in two entries, also in line 4" in lines[2]
    assert lines[-1] == "3 faults."


def test_without_a_mesh_data_and_model_are_looked_at(fednode: Fednode, tmp_path: Path) -> None:
    (tmp_path / "images" / "cat").mkdir(parents=True)
    words = ("--set", f"data.path={tmp_path / 'images'}", "--set", "model.name=ViT-Z-99")
    assert fednode("check", *words) == 2
    faults = [line for line in fednode.out.splitlines() if line.startswith("fault: ")]
    assert any("cat" in line for line in faults)
    assert any("ViT-Z-99" in line for line in faults)


def test_a_state_directory_in_use_or_of_another_model(
    fednode: Fednode, peers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    plan = make(peers, None, "a", QUICK[1:], state)
    store = Store(state)
    learner = learner_of(plan.settings, "a")
    store.bind({"name": "a", **facts_of(plan, learner), "backbone": "f" * 64, "schema": "other"})
    store.commit(Snapshot(PolicyState(1, EMPTY, EMPTY), {}))
    words = ("check", "--peers", peers, "--name", "a", "--state", state, *QUICK)
    assert fednode(*words) == 2
    assert "in use" in fednode.out
    store.close()
    assert fednode(*words) == 0
    (line,) = [one for one in fednode.out.splitlines() if one.startswith("warning: ")]
    assert "The rounds begin anew, because backbone was ffffffffffff and is " in line
    assert line.endswith(f"earlier runs are kept in {state / 'runs'}.")
    monkeypatch.setattr(check_peers, "runs", AsyncMock(return_value=True))
    store = Store(state)  # as the running node
    assert fednode(*words) == 0
    assert "warning: The rounds begin anew after a restart, because backbone" in fednode.out
    store.close()


def test_classes_and_images_are_counted(fednode: Fednode, tmp_path: Path) -> None:
    draw(tmp_path / "images", 6)
    (tmp_path / "images" / "sea" / "notes.txt").touch()
    (tmp_path / "images" / "sea" / "x.png").write_bytes(b"no image")
    words = ("--set", f"data.path={tmp_path / 'images'}", "--set", "data.shots=4")
    off = ("--set", "cache.size_mb=0")
    assert fednode("check", *words, *off) == 0
    root = tmp_path / "images"
    counted = rf"note: The images in {re.escape(str(root))}: 2 classes; \d for training, \d for t"
    assert re.search(counted, fednode.out)
    assert f"note: The model is {ModelSettings().title} (fingerprint " in fednode.out
    sea = root / "sea"
    assert f"Skipped 1 file (no image of a known format): '{sea / 'x.png'}'." in fednode.out
    assert f"Skipped 1 file (not an image by its suffix): '{sea / 'notes.txt'}'." in fednode.out
    assert (
        "Images of one colour throughout, in which the model sees nothing: 12, such as"
        in fednode.out
    )


def test_a_disk_that_cannot_be_written(
    fednode: Fednode, peers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "as the system says")

    monkeypatch.setattr(Disk, "write", fail)
    before = sorted(tmp_path.rglob("*"))
    state = tmp_path / "some" / "state"
    words = ("check", "--peers", peers, "--name", "a", "--state", state, *QUICK)
    assert fednode(*words) == 2
    assert (
        f"fault: The state directory {state} cannot be written: the disk is full; free"
        in fednode.out
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_the_page_is_looked_at_too(fednode: Fednode, peers: Path) -> None:
    words = ("--set", "page.listen=0.0.0.0:0", *QUICK)
    assert fednode("check", "--peers", peers, "--name", "a", *words) == 2
    (fault,) = (line for line in fednode.out.splitlines() if line.startswith("fault: "))
    assert "page.token is not set" in fault


def test_the_classes_of_peers_are_compared(fednode: Fednode, peers: Path, tmp_path: Path) -> None:
    draw(tmp_path / "images", 6)
    images = ("--set", f"data.path={tmp_path / 'images'}")
    with canned.node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7192", address))
        fednode("check", "--peers", peers, "--name", "a", *images)
        assert "note: Only this node has its classes: lemon, sea." in fednode.out
        assert "note: Classes of peers that this node does not have: " in fednode.out
        divided = ("--set", "data.partition.how=dirichlet")
        fednode("check", "--peers", peers, "--name", "a", *images, *divided)
        assert "Only this node has" not in fednode.out


def test_class_sums_that_may_not_be_sent_are_foreseen(fednode: Fednode) -> None:
    words = ("policy.name=gda", "data.classes=[barrel, beaver, anchor]", "data.shots=8")
    flags = [part for flag in words for part in ("--set", flag)]
    assert fednode("check", *flags, "--set", "privacy.least_images=9") == 0
    assert "warning: None of this node's 3 classes has privacy.least_images (9)" in fednode.out
    assert fednode.out.splitlines()[-1] == "No fault."


@pytest.mark.parametrize(
    ("policy", "said", "code"),
    [
        ("promptfl", "fault: The class names 'bcc' and 'nv' are one and the same for", 2),
        ("gda", "note: The class names 'bcc' and 'nv' are one and the same for", 0),
    ],
)
def test_names_that_the_model_takes_for_one_are_named(
    fednode: Fednode, tmp_path: Path, policy: str, said: str, code: int
) -> None:
    draw(tmp_path, 6)
    words = (f"data.path={tmp_path}", "data.rename={lemon: bcc, sea: nv}", f"policy.name={policy}")
    assert fednode("check", *(part for word in words for part in ("--set", word))) == code
    assert said in fednode.out


def test_check_shows_what_a_folder_takes(tmp_path: Path) -> None:
    name = f"local-dir:{folders.biomedical(tmp_path)}"
    said = CliRunner().invoke(check, ["--model", name, "--format", "json"], standalone_mode=False)
    (row,) = json.loads(said.stdout)
    assert (row["fault"], row["text"], row["visual"], row["features"]) == ("", "", True, 32)
    assert set(row["policies"]) == set(NEEDS) - {"feddpt"}
    assert row["template"] == "this is a photo of {}"
    assert said.return_value == 0


def test_check_names_the_policies_of_a_model() -> None:
    said = CliRunner().invoke(check, ["--model", "RN50"], standalone_mode=False)
    assert said.stdout.splitlines() == [
        "RN50: 102 million weights, 1024 features",
        "learned text prompts: yes",
        "deep text prompts: yes",
        "visual prompts: no",
        "patches: no",
        "tokens of a text: 77",
        "policies: diprompt, fedclip, fedpgp, fedtpg, gda, local, promptfl, zerodfl",
        "hand-written prompt (tuning.template: auto): a photo of a {}.",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "ViT-B-61"], "model.name is 'ViT-B-61', which is neither fednode-mini"),
        (["--model", "local-dir:/nowhere"], "open_clip_config.json cannot be read"),
    ],
)
def test_a_model_that_cannot_be_had_is_a_sentence(words: list[str], sentence: str) -> None:
    said = CliRunner().invoke(check, words, standalone_mode=False)
    assert sentence in said.stdout
    assert said.stdout.count("\n") == 1
    assert said.return_value == 2


def plan_at(folder: Path, address: str, *flags: str, peer: str = "127.0.0.1:2") -> NodePlan:
    file = folder / "peers.yaml"
    entries = f"  - {{name: a, address: '{address}'}}\n  - {{name: b, address: '{peer}'}}\n"
    file.write_text(f"mesh: m\ninsecure: true\npeers:\n{entries}", encoding="utf-8")
    return make(file, None, "a", ("tuning.kind=closed-form", *flags), folder / "state")


def test_an_address_that_is_taken_is_a_fault(tmp_path: Path) -> None:
    own, page = free_ports(2)
    plan = plan_at(tmp_path, f"127.0.0.1:{own}", f"page.listen=127.0.0.1:{page}")
    assert list(port_findings(plan, running=False)) == []
    with socket.create_server(("127.0.0.1", own)):
        ((level, text),) = port_findings(plan, running=False)
        assert list(port_findings(plan, running=True)) == []
    assert level == "fault"
    assert str(own) in text


@pytest.mark.parametrize(
    ("ahead", "text"),
    [
        (0.0, ""),
        (4.0, ""),
        (90.0, "its clock is 90 s ahead of this machine's, and certificates end by the clock"),
        (-90.0, "its clock is 90 s behind this machine's, and certificates end by the clock"),
    ],
)
def test_clocks_are_compared(ahead: float, text: str) -> None:
    assert _clock(ahead, 0.1) == text


async def test_a_peer_that_is_not_as_this_node_is(tmp_path: Path) -> None:
    me = status_pb2.Peer(name="a", unreached="nobody answers")
    later = time.time() + 60.0
    with canned.node(name="b", mesh="m", policy="local", clock=later, peers=[me]) as address:
        plan = plan_at(tmp_path, "127.0.0.1:1", peer=address)
        found = await peer_findings(plan, QuadraticLearner("a"), "f", running=False)
    assert found[0] == ("fault", "b cannot reach a: nobody answers.")
    differs = f"b at {address}: policy is zerodfl here and local there; model is closed-form here"
    assert found[1] == ("fault", f"{differs} and 0123456789ab there.")
    assert found[2][0] == "warning"
    assert "s ahead of this machine's, and certificates end by the clock." in found[2][1]


def test_the_proxy_is_named_without_its_password(tmp_path: Path) -> None:
    plan = plan_at(tmp_path, "127.0.0.1:1")
    settings = replace(plan.settings, proxy="http://me:secret@127.0.0.1:8080")
    assert proxy_of(replace(plan, settings=settings)) == "127.0.0.1:8080"
