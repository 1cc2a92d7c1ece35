"""`fednode invite`: the link alone on standard output, who may be invited, and who waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.invite import issue
from fednode.app.plan import NodePlan, make
from fednode.enrolment.invitation import decode
from fednode.enrolment.ledger import ApprovalPending
from fednode.enrolment.words import words_of
from fednode.errors import ConfigError, StateError
from fednode.identity import keys
from fednode.identity.certificates import Authority
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Member, Roster
from fednode.settings.peers import load_peers
from fednode.transports.address import RelayEntry
from tests.unit.app.founders import (
    MESH,
    founded,
    identity_of,
    ledger_of,
    mesh_key_of,
    resign,
)
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


def test_folders_are_issued_for_nodes_and_relays_and_again_for_the_same_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch, RelayEntry("r", "127.0.0.1:9"))
    out, ledger = tmp_path / "out", ledger_of(plan)
    own = identity_of(plan)
    roster = Roster(MESH, keys.read_public(str(plan.peers.mesh_key)))
    sponsor, root = own.sponsor(), Authority.root(MESH, mesh_key_of(plan))
    assert sponsor is not None
    nodes = {"b": "10.0.0.8:7100", "c": "relay", "r": "127.0.0.1:9", "a": plan.address}
    ids = list[list[str]]()
    for authority in (sponsor, root):
        issue(out, plan, authority, ledger, nodes)
        for name in nodes:
            identity = NodeIdentity(out / name)
            assert roster.identify(identity.own().chain) == Member(name, identity.id)
        ids.append([NodeIdentity(out / name).id for name in nodes])
    assert ids[0] == ids[1]
    assert ids[0][-1] == own.id, "this node itself has one key"
    assert {path.stat().st_mode & 0o077 for path in out.glob("*/identity/node.key")} == {0}
    peers = load_peers(out / "b" / "peers.yaml")
    assert [(one.name, one.address) for one in peers.peers] == [
        ("a", "relay"),
        ("b", "10.0.0.8:7100"),
        ("c", "relay"),
    ]
    assert [(one.name, one.address) for one in peers.relays] == [("r", "127.0.0.1:9")]
    ready = make(out / "b" / "peers.yaml", None, None, (), out / "b")
    assert (ready.name, ready.address) == ("b", "10.0.0.8:7100")
    with pytest.raises(ConfigError, match="'b' is a member already"):
        issue(tmp_path / "other", plan, sponsor, ledger, nodes)
    (out / "b" / "identity").chmod(0o777)
    with pytest.raises(StateError, match="Every user may write in"):
        issue(out, plan, sponsor, ledger, nodes)
