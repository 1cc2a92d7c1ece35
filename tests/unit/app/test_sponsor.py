"""A sponsor beside a running node: which guests it lets in, and what it tells them."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fednode.app.mesh import Mesh, connect
from fednode.app.plan import NodePlan
from fednode.app.sponsor import Sponsor
from fednode.core.members.table import Member
from fednode.enrolment.client import Newcomer
from fednode.enrolment.invitation import decode
from fednode.enrolment.ledger import ApprovalPending
from fednode.enrolment.words import words_of
from fednode.errors import ConfigError, Refused, Unreachable
from fednode.identity import keys
from fednode.identity.certificates import Authority
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Member as Known
from fednode.identity.roster import Roster, day
from fednode.settings.shared import parse
from tests.contract.faults import pause
from tests.contract.transport_suite import GUARD_S
from tests.unit.app.founders import (
    MESH,
    admits,
    founded,
    identity_of,
    joined,
    ledger_of,
    link_to,
    mesh_key_of,
    resign,
)

AWAY = "127.0.0.1:9"


def sponsor_in(mesh: Mesh) -> Sponsor:
    assert mesh.sponsor is not None
    return mesh.sponsor


def running(*members: Member) -> Any:
    """Return a driver that knows some members."""
    return cast("Any", SimpleNamespace(view=lambda: SimpleNamespace(peers=members), tell=list))


async def test_an_invited_site_is_told_of_the_members_and_the_shared_settings(
    founder: NodePlan, tmp_path: Path
) -> None:
    link = link_to(founder, "e")
    states = {"b": "left", "c": "alive", "d": "revoked", "e": "dead", "f": "quarantined"}
    members = [Member(name=name, state=state) for name, state in states.items()]
    async with admits(founder) as mesh:
        sponsor_in(mesh).attach(running(*members), "")
        newcomer = Newcomer(link, NodeIdentity.create(tmp_path / "e"))
        offer = await newcomer.describe()
        assert offer.members == ["a", "c", "f"], "nobody is a member before it joins"
        assert parse(offer.settings)["rounds"]["max"] == 3
        await newcomer.enrol(AWAY)
        own = NodeIdentity(tmp_path / "e")
        assert mesh.roster is not None
        assert mesh.roster.identify(own.own().chain) == Known("e", own.id)
        assert mesh.roster.id_of("e") == own.id, "the node greets it at once"


async def test_guests_come_in_while_the_ledger_has_their_invitation_and_the_node_may_sign(
    founder: NodePlan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with admits(founder) as mesh:
        sponsor, link = sponsor_in(mesh), link_to(founder, "b")
        right = sponsor.identity.sponsor()
        assert right is not None
        newcomer = Newcomer(link, NodeIdentity.create(tmp_path / "b"))
        with pytest.raises(Unreachable, match="it does not know the link"):
            await newcomer.describe()  # the node has not looked yet
        await sponsor.look()
        await newcomer.describe()
        resign(founder, mesh.identity)
        with pytest.raises(Refused, match="a may not admit sites"):
            await newcomer.describe()
        await sponsor.look()
        with pytest.raises(Unreachable, match="it does not know the link"):
            await newcomer.describe()
        said = sponsor.take_certificate(right.chain)
        assert said == f"a admits newcomers until {day(sponsor.identity.sponsor_end)}"
        await sponsor.look()
        await newcomer.describe()
        sponsor.ledger.settle("b", good=False)
        await sponsor.look()
        with pytest.raises(Unreachable, match="it does not know the link"):
            await newcomer.describe()
        bad_key = '{"entries": {"c": {"key": "0g", "end": 9999999999}}, "holders": {}}'
        for damaged in ("{", bad_key):
            caplog.clear()
            (founder.state / "enrolment" / "ledger.json").write_text(damaged)
            await sponsor.look()
            assert "No invitation holds: " in caplog.text


async def test_a_right_that_the_node_has_changes_and_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, told = founded(tmp_path, monkeypatch), list[object]()
    own, root = identity_of(plan), Authority.root(MESH, mesh_key_of(plan))
    file = plan.state / "identity" / "node.crt"
    async with admits(plan) as mesh:
        sponsor = sponsor_in(mesh)
        sponsor.attach(cast("Any", SimpleNamespace(tell=told.append)), "")
        right = root.sponsor("a", own.key.public_key(), days=400)
        said = sponsor.take_certificate(right)
        credential, stored = sponsor.identity.own(), file.read_bytes()
        assert len(told) == 1
        assert sponsor.take_certificate(right) == said, "any member can send it again"
        assert sponsor.identity.own() is credential
        assert file.read_bytes() == stored
        assert len(told) == 1


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_renewal_loses_no_right_that_a_command_stored_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    founder = founded(tmp_path, monkeypatch)
    plan = founder if name == "a" else joined(founder, tmp_path, name)
    async with admits(founder) as signer:
        mesh = signer if name == "a" else connect(plan)
        own, stored = sponsor_in(mesh).identity, identity_of(plan)
        key, before, now = mesh_key_of(founder), own.own(), time.time()
        right = Authority.root(MESH, key).sponsor(name, own.key.public_key(), days=400)
        stored.take_sponsor(right, Roster(MESH, key.public_key()))
        own.clock = sponsor_in(signer).identity.clock = lambda: now + 80 * 24 * 3600
        keeping = asyncio.create_task(sponsor_in(mesh).keep_certificate(mesh.transport))
        async with asyncio.timeout(GUARD_S):
            while own.own() is before:
                await pause(0.01)
        keeping.cancel()
        assert identity_of(plan).sponsor_end == own.sponsor_end == stored.sponsor_end
        await mesh.transport.close()


async def test_the_first_site_that_joins_is_recommended_as_a_second_sponsor(
    founder: NodePlan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    links = [link_to(founder, name) for name in "bc"]
    async with admits(founder) as mesh:
        for link in links:
            identity = NodeIdentity.create(tmp_path / link.site)
            await Newcomer(link, identity).enrol(AWAY)
            member = Member(name=link.site, state="alive", address=AWAY, id=identity.id)
            sponsor_in(mesh).attach(running(member), "")
    assert caplog.text.count("is the first site that joined") == 1
    assert "outlives this machine: fednode sponsor b" in caplog.text


async def test_a_certificate_that_nobody_renews_is_a_warning_until_a_sponsor_answers(
    founder: NodePlan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("fednode.app.sponsor.RENEWAL_S", 0.05)
    mesh = connect(joined(founder, tmp_path, "b"))
    sponsor, now = sponsor_in(mesh), time.time()
    before = sponsor.identity.own()
    sponsor.identity.clock = lambda: now + 80 * 24 * 3600
    keeping = asyncio.create_task(sponsor.keep_certificate(mesh.transport))
    async with asyncio.timeout(GUARD_S):
        while not (said := sponsor.warning()):
            await pause(0.01)
    assert "ends on" in said
    assert "and it is not renewed. Those who can renew it: a; start one of them." in said
    assert f"a at {founder.address} does not answer: start it." in said
    assert "`fednode sponsor b --mesh-key FILE` on this machine" in said
    assert said in caplog.text
    async with admits(founder) as other:
        sponsor_in(other).identity.clock = sponsor.identity.clock
        async with asyncio.timeout(GUARD_S):
            while sponsor.identity.own() is before:
                await pause(0.01)
    assert sponsor.warning() == ""
    keeping.cancel()
    await mesh.transport.close()


KEY_B, KEY_C = keys.grouped(bytes([2]) * 32), keys.grouped(bytes([3]) * 32)


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
        await desk.invite("c", approve=True)
        with pytest.raises(ApprovalPending):
            ledger.enrol("c", KEY_C, AWAY)
        said = await desk.settle("c", KEY_C, good=False)
        assert said == "c was refused, and its link has ended."
        assert (await desk.sites())["waiting"] == []
        resign(founder, mesh.identity)
        assert [desk.open] == [False]
    assert "invited c" in caplog.text
    assert link.token.hex() not in caplog.text
    assert made["link"] not in caplog.text
