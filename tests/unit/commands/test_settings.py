"""`fednode settings`: what is shown, what a pull asks, what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fednode.app.plan import NodePlan
from fednode.commands import settings
from fednode.errors import Unreachable
from fednode.observe.client import Client
from fednode.settings.read import Source, settings_of
from fednode.settings.shared import shared_text
from fednode.wire.gen.status_pb2 import SettingsReply
from tests.unit.app.founders import MESH, founded, joined
from tests.unit.commands.run import Fednode


class Ward:
    """A site in a mesh whose sponsor `a` answers with other settings; tests change its answer."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.founder: NodePlan = founded(folder, monkeypatch)
        self.plan = joined(self.founder, folder, "b")
        self.folder = folder / "files-b"
        self.config = self.folder / "node.yaml"
        self.asked = list[str]()
        self.answers: list[Any] = []
        self.reply = SettingsReply(name="a", mesh=MESH)
        self.says(policy={"name": "promptfl"}, rounds={"max": 30})
        monkeypatch.setattr(Client, "settings", self.ask)
        monkeypatch.setattr("click.confirm", self.confirm)
        monkeypatch.setattr("sys.stdin.isatty", lambda: bool(self.answers), raising=False)
        monkeypatch.chdir(self.folder)

    def says(self, **tree: Any) -> None:
        self.reply.settings = shared_text(settings_of(Source("test", tree))).encode()

    def confirm(self, question: str) -> bool:
        self.asked.append(question)
        return bool(self.answers.pop(0))

    async def ask(self, client: object, address: str) -> SettingsReply:
        self.asked.append(address)
        if not self.reply.name:
            raise Unreachable(f"Nobody answers at {address}.")
        return self.reply


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ward:
    return Ward(tmp_path, monkeypatch)


@pytest.fixture
def fednode(capsys: pytest.CaptureFixture[str]) -> Fednode:
    return Fednode(capsys)


def test_the_command_shows_the_shared_settings_of_this_node(ward: Ward, fednode: Fednode) -> None:
    assert settings.settings.name == "settings"
    assert fednode("settings") == 0
    assert "policy.name: promptfl\n" in fednode.out
    assert "\nrounds.max: 3\n" in fednode.out
    assert "data.path" not in fednode.out
    assert ward.asked == []


def test_what_differs_is_shown_and_written_after_a_yes(ward: Ward, fednode: Fednode) -> None:
    before = "# b's own\nname: b\npolicy: {name: promptfl}\nrounds:\n  max: 3\n  deadline_s: 9.0\n"
    ward.config.write_text(before)
    ward.answers = [True]
    assert fednode("settings", "pull") == 0
    assert fednode.out.splitlines() == [
        "rounds.max: 3 -> 30",
        f"{ward.config} is written anew, without its comments; a copy of it is kept.",
        f"{ward.config} has the shared settings of a. The file before is {ward.config}.before. "
        "`fednode check` says whether the rounds begin anew with them. Restart the node: fednode "
        "start",
    ]
    assert ward.asked == [
        ward.founder.address,
        f"Write these settings of a into {ward.config}?",
    ]
    text = ward.config.read_text()
    assert text.startswith("name: b\n"), "what no template has is written anew"
    assert "max: 30" in text
    assert "deadline_s: 9.0" in text
    assert Path(f"{ward.config}.before").read_text() == before
    assert fednode("settings", "pull", "a", "--yes") == 0
    assert fednode.out == "b has the shared settings of a already: nothing is to be done.\n"


def test_no_writes_nothing(ward: Ward, fednode: Fednode) -> None:
    before = ward.config.read_text()
    ward.says(policy={"name": "fedpgp"}, rounds={"max": 3})
    ward.answers = [False]
    assert fednode("settings", "pull") == 1
    assert "policy.name: promptfl -> fedpgp" in fednode.out
    assert "Nothing was written." in fednode.err
    assert "Nobody can be asked here" in fednode.fault("settings", "pull")
    assert ward.config.read_text() == before
    assert [path.name for path in ward.folder.glob("node.yaml*")] == ["node.yaml"]


def test_a_node_without_a_file_gets_one_and_a_private_file_stays_private(
    ward: Ward, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.config.chmod(0o600)
    assert fednode("settings", "pull", "--yes") == 0
    assert ward.config.stat().st_mode & 0o077 == 0
    ward.config.unlink()
    monkeypatch.setenv("FEDNODE_NAME", "b")
    assert fednode("settings", "pull", "--yes") == 0
    assert "The file before" not in fednode.out
    assert "max: 30" in ward.config.read_text()


def test_who_is_asked_must_answer_and_be_another_member(
    ward: Ward, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.reply.name = ""
    said = fednode.fault("settings", "pull", "--yes")
    assert said.startswith(f"Nobody answers at {ward.founder.address}.")
    assert "name another member, as in fednode settings pull NAME" in said
    assert "No peer is called 'zoe'" in fednode.fault("settings", "pull", "zoe")
    ward.reply.name, ward.reply.mesh = "a", "other"
    assert f"answers a of mesh 'other': name another member of '{MESH}'" in fednode.fault(
        "settings", "pull"
    )
    ward.reply.name, ward.reply.mesh = "b", MESH
    assert "answers b of mesh" in fednode.fault("settings", "pull", "b")
    monkeypatch.chdir(ward.folder.parent / MESH)
    assert "peers.yaml lists no other node" in fednode.fault("settings", "pull")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: b\nrounds: {max: 3\n", "node.yaml is not valid YAML"),
        ("name: b\nrounds: {maxx: 3}\n", "unknown key 'rounds.maxx'"),
        ("name: b\nprivacy: {clip: 1.0}\nrounds: {max: 3}\n", "cannot run under the settings of a"),
    ],
)
def test_a_damaged_file_and_settings_that_do_not_fit_change_nothing(
    ward: Ward, fednode: Fednode, text: str, said: str
) -> None:
    ward.says(policy={"name": "gda"})
    ward.config.write_text(text)
    assert said in fednode.fault("settings", "pull", "--yes")
    assert ward.config.read_text() == text


def test_what_a_variable_sets_cannot_be_pulled(
    ward: Ward, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDNODE_ROUNDS__MAX", "7")
    said = fednode.fault("settings", "pull", "--yes")
    assert said.startswith("FEDNODE_ROUNDS__MAX sets rounds.max, whatever node.yaml says: remove")


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"policy": {"name": "zoe"}}'])
def test_an_answer_that_is_none_changes_nothing(
    ward: Ward, fednode: Fednode, answer: bytes
) -> None:
    before = ward.config.read_text()
    ward.reply.settings = answer
    assert fednode.fault("settings", "pull", "--yes")
    assert ward.config.read_text() == before
