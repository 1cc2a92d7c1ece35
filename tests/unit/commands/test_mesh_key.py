"""`fednode remove` and `sponsor`: what the mesh key does, also while the founder's node is down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from fednode.app.create import mesh_key_file
from fednode.app.mesh import roster_in
from fednode.app.peer_cache import FILE as PEERS
from fednode.app.peer_cache import PeerCache
from fednode.app.plan import NodePlan
from fednode.core.members.table import Member
from fednode.errors import StateError
from fednode.identity.certificates import Revocation
from fednode.identity.identity import IDENTITY
from tests.unit.app.founders import MESH, identity_of, joined, ledger_of, mesh_key_of
from tests.unit.commands.run import Fednode


def is_revoked(plan: NodePlan, id: str) -> bool:
    return roster_in(plan.state, plan.peers)[0].is_revoked(id)


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
    fednode: Fednode, founder: NodePlan, tmp_path: Path
) -> None:
    id = identity_of(joined(founder, tmp_path, "b")).id
    said = fednode.fault("remove", "c")
    assert "a knows no site 'c'; it knows b. a was asked, too, and did not answer: " in said
    said = fednode.fault("remove", "a")
    assert said.startswith("'a' is this node itself, and removes only others: `fednode leave`")
    assert fednode("remove", "b", "--yes") == 0
    assert fednode.out == "b is revoked; a tells the others at its next start.\n"
    assert is_revoked(founder, id)
    assert list(ledger_of(founder).read().holders) == ["a"]
    assert "a knows no site 'b'; it knows no other site." in fednode.fault("remove", "b")
    assert fednode("invite", "b") == 0
    mesh_key_file(MESH).unlink()
    assert "This takes the mesh key" in fednode.fault("remove", "b")


def test_each_command_says_that_the_key_of_this_machine_was_revoked(
    fednode: Fednode, founder: NodePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = joined(founder, tmp_path, "b")
    proof = Revocation(MESH, "b", identity_of(site).id, 1).sign(mesh_key_of(founder))
    roster_in(site.state, site.peers)[0].take_revocation(proof)
    (site.state / "checkpoints").mkdir()  # it ran
    monkeypatch.chdir(tmp_path / "files-b")
    said = "The mesh 'ward' revoked the key of this node, 'b': ask for a new link."
    for word in ("status", "logs", "start", "pause"):
        assert fednode(word) == 4
        assert said in fednode.err
    assert fednode("check") == 2
    assert f"fault: {said}" in fednode.out


def test_a_site_that_another_sponsor_admitted_is_known_while_the_node_is_down(
    fednode: Fednode, founder: NodePlan, tmp_path: Path
) -> None:
    site = joined(founder, tmp_path, "b")
    ledger_of(founder).forget("b")
    own = identity_of(site)
    met = Member(name="b", state="alive", address=site.address, id=own.id, proof=own.proof)
    PeerCache(founder.state / IDENTITY / PEERS).store([met])
    assert fednode("remove", "b", "--yes") == 0
    assert is_revoked(founder, own.id)


def test_a_revocation_that_nobody_stores_is_none(
    fednode: Fednode, founder: NodePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = identity_of(joined(founder, tmp_path, "b")).id

    def full(*_: Any) -> None:
        raise StateError("there is no room")

    monkeypatch.setattr("fednode.identity.roster.put", full)
    assert "b is not removed: a does not run, and its" in fednode.fault("remove", "b", "--yes")
    assert not is_revoked(founder, id)


def test_the_operator_is_asked_and_no_is_no(
    fednode: Fednode,
    founder: NodePlan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[Any],
) -> None:
    id = identity_of(joined(founder, tmp_path, "b")).id
    assert fednode("remove", "b") == 1
    assert asked[1:] == ["Remove b from the mesh?"]
    assert "This revokes the key of b for good" in fednode.out
    assert "only by a new link (`fednode invite b`)" in fednode.out
    assert "Nothing was done; the site is still a member." in fednode.err
    asked[0] = None
    assert fednode("remove", "b") == 130
    assert "Nothing was done; the site is still a member." in fednode.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert "whether to remove b: give --yes" in fednode.fault("remove", "b")
    assert not is_revoked(founder, id)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked[0] = True
    assert fednode("remove", "b") == 0
    assert is_revoked(founder, id)


def test_the_right_is_renewed_or_given_to_a_node_that_runs(
    fednode: Fednode, founder: NodePlan, tmp_path: Path
) -> None:
    file = founder.state / "identity" / "node.crt"
    before = file.read_bytes()
    assert fednode("sponsor", "a") == 0
    assert fednode.out == "a may admit sites for another year, from its next start on.\n"
    assert file.read_bytes() != before
    assert fednode("sponsor", "b") == 5
    assert "b was not told: " in fednode.err
    assert "Run this again when a runs." in fednode.err
    copy = tmp_path / "copy.key"
    mesh_key_file(MESH).rename(copy)
    assert "run it on the founder's machine" in fednode.fault("sponsor", "a")
    assert fednode("sponsor", "a", "--mesh-key", str(copy)) == 0
