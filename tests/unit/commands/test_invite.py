"""`fednode invite`: the link alone on standard output, who may be invited, and who waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.plan import NodePlan
from fednode.enrolment.invitation import decode
from fednode.enrolment.ledger import ApprovalPending
from fednode.enrolment.words import words_of
from fednode.identity import keys
from fednode.identity.identity import NodeIdentity
from tests.unit.app.founders import MESH, founded, ledger_of, resign
from tests.unit.commands.run import Fednode

KEY = keys.grouped(bytes([2]) * 32)


def test_a_link_is_printed_and_a_second_one_ends_it(fednode: Fednode, founder: NodePlan) -> None:
    assert fednode("invite", "b") == 0
    link = decode(fednode.out)
    assert (link.mesh, link.site, link.sponsor) == (MESH, "b", "a")
    assert link.mesh_key == founder.peers.mesh_key
    assert link.address == founder.address
    assert "The words of the mesh, which b must see, too: " in fednode.err
    assert fednode("invite", "b") == 0
    assert decode(fednode.out).token != link.token
    assert len(ledger_of(founder).invitations()) == 1
    assert fednode("invite", "--list") == 0
    assert fednode.out.startswith("b has a link until 20")
    assert fednode("invite", "--refuse", "b") == 0
    assert fednode.out == "b was refused, and its link has ended.\n"
    assert fednode("invite", "--list") == 0
    assert fednode.out == "No link is open, and no site waits.\n"


def test_a_site_that_waits_is_listed_with_its_words_and_accepted(
    fednode: Fednode, founder: NodePlan
) -> None:
    assert fednode("invite", "b", "--approve") == 0
    assert "after `fednode invite --accept b` the same `fednode join` joins" in fednode.err
    with pytest.raises(ApprovalPending):
        ledger_of(founder).enrol("b", KEY, "10.0.0.8:7100")
    assert fednode("invite", "--list") == 0
    words = words_of(KEY)
    assert fednode.out == f"b at 10.0.0.8:7100 waits: {words}\n"
    assert "No site 'd' waits; there waits: b." in fednode.fault("invite", "--accept", "d")
    assert fednode("invite", "--accept", "b") == 0
    assert fednode.out == "b may join now: it runs the same `fednode join` again.\n"
    ledger_of(founder).enrol("b", KEY, "10.0.0.8:7100")
    assert "'b' is a member already" in fednode.fault("invite", "b")


def test_who_cannot_be_invited_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    assert "No node of this machine admits sites" in fednode.fault("invite", "b")
    founded(tmp_path, monkeypatch)
    assert "Give one SITE, or one of --list" in fednode.fault("invite")
    assert "Give one SITE, or one of --list" in fednode.fault("invite", "b", "--list")
    assert "2 names are given" in fednode.fault("invite", "b", "c")
    assert "SITE is 'B'" in fednode.fault("invite", "B")
    assert "SITE is 'a', which is this node's own name" in fednode.fault("invite", "a")


def test_folders_are_written_without_a_running_node(fednode: Fednode, founder: NodePlan) -> None:
    assert "give b=HOST:PORT" in fednode.fault("invite", "--out", "out", "b")
    assert "NAME names 'b' twice" in fednode.fault("invite", "--out", "o", "b=h:1", "b=h:2")
    assert not Path("out").exists()
    assert fednode("invite", "--out", "out", "b=10.0.0.8:7100") == 0
    assert fednode.out.startswith("Wrote out/b: move each folder to its machine")
    assert NodeIdentity(Path("out/b")).name == "b"
    # With the mesh key alone, as long as the node is no sponsor.
    resign(founder)
    assert fednode("invite", "--out", "out", "c=10.0.0.9:7100") == 0
    (founder.state.parent / "mesh.key").unlink()
    assert "This takes the mesh key" in fednode.fault("invite", "--out", "out", "d=10.0.0.9:1")
