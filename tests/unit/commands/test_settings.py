"""`fednode settings`: what is shown, what is signed, what is asked before a decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fednode.commands import settings
from fednode.identity.document import Content, peek
from fednode.observe.settings import Shown, reply_of
from fednode.wire.gen import status_pb2
from tests.unit.app.founders import MESH, founded
from tests.unit.commands.run import Fednode
from tests.unit.observe.test_settings import SHOWN


class FakeClient:
    """A node that answers, and notes what it is told."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.told: list[tuple[str, bytes, str]] = []

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def status(self, _: str) -> status_pb2.StatusReply:
        return status_pb2.StatusReply(name="a", round=7, settings=reply_of(self.shown))

    async def control(self, _: str, command: str, proof: bytes = b"", which: str = "") -> str:
        self.told.append((command, proof, which))
        return f"a was told to {command}"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """A founder's node that runs, in the present folder."""
    founded(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path / MESH)
    made = FakeClient(SHOWN)
    monkeypatch.setattr("fednode.app.network.client_of", lambda *_: made)
    return made


def test_the_command_shows_what_is_in_force_and_proposed(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    assert settings.settings.name == "settings"
    assert fednode("settings") == 0
    assert fednode.out.startswith("in force: settings 2, signed by a (bbbbbbbbbbbb)\n")
    assert fednode("settings", "diff") == 0
    assert "  rounds.max: 20 -> 30\n" in fednode.out
    assert "in force:" not in fednode.out
    assert "No change of the settings called '9' is proposed" in fednode.fault(
        "settings", "diff", "9"
    )
    assert client.told == []


def proposal(client: FakeClient) -> Content:
    command, proof, _ = client.told.pop()
    assert command == "propose"
    return peek(proof)


def test_a_change_is_shown_in_words_signed_and_given_to_the_node(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    assert fednode("settings", "propose", "--set", "rounds.max=30", "--yes") == 0
    assert "Settings 4, from round 17 on:\n  rounds.max: 3 -> 30\n  the rounds go on" in fednode.out
    found = proposal(client)
    assert (found.number, found.start, found.settings["rounds"]["max"]) == (4, 17, 30)
    given = ("--policy", "fedpgp", "--after", "2", "--yes")
    assert fednode("settings", "propose", *given) == 0
    assert "policy.name: promptfl -> fedpgp" in fednode.out
    assert "the rounds begin anew" in fednode.out
    assert proposal(client).start == 9


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("propose", "--yes"), "This changes nothing"),
        (("propose", "--set", "rounds.max=30"), "Nobody can be asked here: give --yes"),
        (("propose", "--set", "data.path=/", "--yes"), "data.path is each site's own"),
        (("propose", "--policy", "gda", "--after", "0"), "--after is 0; give at least 1"),
        (("propose", "--set", "rounds.maxx=60", "--yes"), "rounds.maxx'; did you mean 'max'?"),
        (("take",), "Nobody can be asked here: give --yes"),
        (("refuse",), "Nobody can be asked here: give --yes"),
        (("take", "x"), "called 'x' is proposed"),
        (("refuse", "9"), "called '9' is proposed"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_told(
    client: FakeClient, capsys: pytest.CaptureFixture[str], words: Any, text: str
) -> None:
    assert text in Fednode(capsys).fault("settings", *words)
    assert client.told == []


def test_a_decision_names_the_document_that_was_shown(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    assert fednode("settings", "take", "--yes") == 0
    assert "  rounds.max: 20 -> 30\n" in fednode.out
    assert fednode("settings", "refuse", "3", "--yes") == 0
    assert fednode.out.startswith("proposed: settings 3")
    assert client.told == [("take", b"", "c" * 32), ("refuse", b"", "c" * 32)]


def test_a_site_without_the_right_to_admit_proposes_nothing(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    (right,) = (Path.home() / ".local/state/fednode" / MESH).glob("*/admission/right")
    right.unlink()
    given = ("settings", "propose", "--policy", "gda", "--yes")
    assert "a admits no sites, so it proposes no settings" in Fednode(capsys).fault(*given)
    assert client.told == []
