"""`fednode remove`: a site's key is revoked, also while the founder's node is down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from fednode.app.admission import register_of
from fednode.commands import remove
from fednode.identity import lease as leases
from tests.unit.app.founders import MESH, founded, identity_of, link_to
from tests.unit.commands.run import Fednode
from tests.unit.identity.people import LISTED


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the answer to each question, which a test may change; the command asks a terminal."""
    answers: list[Any] = [False]

    def confirm(question: str, **_: Any) -> bool:
        answers.append(question)
        if answers[0] is None:
            raise click.Abort from KeyboardInterrupt
        return bool(answers[0])

    monkeypatch.setattr("click.confirm", confirm)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    return answers


def test_a_site_is_removed_and_can_be_invited_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, fednode = founded(tmp_path, monkeypatch), Fednode(capsys)
    assert remove.remove.name == "remove"
    register = register_of(plan.state, identity_of(plan))
    token = link_to(plan, "b").token.hex()
    register.enrol(LISTED["b"], MESH, "b", "127.0.0.1:9", token)
    assert "a knows no site 'c'; it knows b." in fednode.fault("remove", "c")
    said = fednode.fault("remove", "a")
    assert said.startswith("'a' is this node itself, and removes only others: `fednode leave a")
    assert fednode("remove", "b", "--yes") == 0
    assert fednode.out == "b is revoked; a tells the others at its next start.\n"
    assert [leases.peek(proof).id for proof in register.revocations()] == [LISTED["b"]]
    assert [node.name for node in register.enrolled()] == ["a"]
    assert "a knows no site 'b'; it knows no other site." in fednode.fault("remove", "b")
    assert fednode("invite", "b") == 0


def test_the_operator_is_asked_and_no_is_no(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: list[Any],
) -> None:
    plan, fednode = founded(tmp_path, monkeypatch), Fednode(capsys)
    register = register_of(plan.state, identity_of(plan))
    register.enrol(LISTED["b"], MESH, "b", "127.0.0.1:9", link_to(plan, "b").token.hex())
    assert fednode("remove", "b") == 1
    assert asked[1:] == ["Remove b from the mesh?"]
    assert "The key of b is revoked for good" in fednode.out
    assert "only by a new link (`fednode invite b`)" in fednode.out
    assert "Nothing was done; the site is still a member." in fednode.err
    asked[0] = None
    assert fednode("remove", "b") == 130
    assert "Nothing was done; the site is still a member." in fednode.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert "whether to remove b: give --yes" in fednode.fault("remove", "b")
    assert register.revocations() == []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked[0] = True
    assert fednode("remove", "b") == 0
    assert len(register.revocations()) == 1
