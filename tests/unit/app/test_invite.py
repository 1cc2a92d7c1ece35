"""What the page's operator does with newcomers, on a founder that runs in this process."""

from __future__ import annotations

import logging
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
    admits,
    founded,
    identity_of,
    ledger_of,
    mesh_key_of,
    resign,
)

KEY_B, KEY_C = keys.grouped(bytes([2]) * 32), keys.grouped(bytes([3]) * 32)
AWAY = "127.0.0.1:9"


async def test_a_site_is_invited_and_accepted_by_the_words_that_were_seen(
    founder: NodePlan, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ledger = ledger_of(founder)
    async with admits(founder) as mesh:
        desk = mesh.sponsor
        assert desk is not None
        assert [desk.open] == [True]
        made = await desk.invite("b", approve=True)
        link = decode(made["link"])
        assert (link.site, link.mesh, link.address) == ("b", MESH, founder.address)
        assert made["words"] == words_of(str(founder.peers.mesh_key))
        with pytest.raises(ApprovalPending):
            ledger.enrol("b", KEY_B, AWAY)
        id = identity_of(founder).id
        own = {"name": "a", "address": founder.address, "id": id, "words": words_of(id)}
        assert await desk.sites() == {
            "waiting": [{"name": "b", "address": AWAY, "id": KEY_B, "words": words_of(KEY_B)}],
            "members": [own],
            "mesh_words": made["words"],
        }
        with pytest.raises(ConfigError, match="No site 'b' waits"):
            await desk.settle("b", KEY_C, good=True)
        assert (await desk.settle("b", KEY_B, good=True)).startswith("b may join now")
        ledger.enrol("b", KEY_B, AWAY)
        with pytest.raises(ConfigError, match="'b' is a member already"):
            await desk.invite("b", approve=False)
        await desk.invite("c", approve=True)
        with pytest.raises(ApprovalPending):
            ledger.enrol("c", KEY_C, AWAY)
        assert await desk.settle("c", KEY_C, good=False) == (
            "c was refused, and its link has ended."
        )
        assert (await desk.sites())["waiting"] == []
        resign(founder, mesh.identity)
        assert [desk.open] == [False]
    assert "invited c" in caplog.text
    assert link.token.hex() not in caplog.text
    assert made["link"] not in caplog.text


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
