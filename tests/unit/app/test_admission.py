"""What strangers reach on the port of a node that admits, and what they see there."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.admission import link as links
from fednode.app import admission as admission_module
from fednode.app.admission import register_of, right_of
from fednode.app.founding import mesh_key_of
from fednode.app.inviting import link_for
from fednode.app.joining import ask
from fednode.core.members.table import Member
from fednode.core.types import Update
from fednode.errors import IdentityError, Refused, StateError, Unreachable
from fednode.identity import lease as leases
from fednode.identity.certificate import read_certificate, shown_by
from fednode.identity.enrol import enrol, judge_token, sponsor
from fednode.identity.identity import Identity
from fednode.identity.lease import DAY_S, Statement
from fednode.identity.trust import Trust
from fednode.transports.grpc import GrpcTransport
from fednode.transports.opening import open_directly
from fednode.transports.session import ADMITTING
from fednode.transports.tls import Tls
from fednode.transports.ways import Ways
from fednode.wire.gen import status_pb2, status_pb2_grpc
from tests.unit.app.founders import MESH, admits, founded, identity_of, link_to
from tests.unit.identity.people import LISTED

AWAY = "127.0.0.1:9"


@dataclass
class View:
    peers: tuple[Member, ...]


def stranger(seen: list[bytes], offer: bytes = ADMITTING) -> GrpcTransport:
    """Return the transport of an unknown key, which notes each certificate that it is shown."""

    def judge(certificate: bytes, who: str) -> tuple[str, str]:
        seen.append(certificate)
        return "somebody", ""

    credentials = shown_by(Ed25519PrivateKey.generate(), "stranger")
    return GrpcTransport(Tls(credentials, judge, lambda *_: None, ways=Ways(offer=offer)))


async def test_a_stranger_sees_no_name_and_no_lease_and_reaches_the_one_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    async with admits(plan):
        seen = list[bytes]()
        transport = stranger(seen)
        channel = await transport.channel(plan.address)
        stub = status_pb2_grpc.NodeStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as fault:
            await stub.Status(status_pb2.StatusRequest(), timeout=180)
        assert fault.value.code() == grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(Unreachable, match="is not a fednode node"):
            await transport.send(plan.address, b"frame", 10.0)
        await channel.close()
        await transport.close()
    shown = read_certificate(seen[0])
    assert (shown.name, shown.lease, shown.id) == ("fednode", b"", identity_of(plan).id)
    assert b"ward" not in seen[0]


async def test_an_invited_node_is_admitted_and_told_of_the_mesh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    async with admits(plan) as network:
        link = link_to(plan, "b")
        new, asked = Identity(tmp_path / "b", MESH, "b"), sponsor(plan.address, link.made_by)
        reply = await judge_token(new, asked, AWAY, link.token.hex())
        assert list(reply.members) == ["a"]
        assert b'"max": 3' in reply.settings
        assert bytes(reply.sponsor) == right_of(plan.state)
        told = await enrol(new, asked, AWAY, link.token.hex())
        own = identity_of(plan)
        assert told.contacts == (Update("a", "alive", 0, plan.address, own.id, own.proof),)
        news = Update("b", "alive", 0, AWAY, new.id, new.proof)
        assert network.trust.believed("b", [news]) == (news,), "the lease holds in the mesh"
        # After a restart the founder greets those that it admitted.
        assert [one.name for one in network.admission.remembered()] == ["b"]  # type: ignore[union-attr]


async def test_a_newcomer_is_told_of_the_members_that_belong_to_the_mesh_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    states = {"b": "left", "c": "alive", "d": "revoked", "e": "dead", "f": "quarantined"}
    peers = tuple(Member(name=name, state=state) for name, state in states.items())
    async with admits(plan) as network:
        assert network.admission is not None
        link = link_to(plan, "e")
        network.admission.attach(cast("Any", SimpleNamespace(view=lambda: View(peers))), "")
        assert list(network.admission._offer().members) == ["a", "c", "e", "f"]
        own = Identity(tmp_path / "e", MESH, "e")
        found = await ask(link, own, AWAY, open_directly)
        assert found.members == ("a", "c", "f"), "nobody is a member before it joins"


async def test_a_stranger_and_a_copied_link_are_refused_and_a_false_founder_gets_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    warned = list[str]()
    async with admits(plan) as network:
        network.refusals.show = lambda record: warned.append(record.text)
        link = link_to(plan, "b")
        asked = sponsor(plan.address, link.made_by)
        thief = Identity(tmp_path / "thief", MESH, "b")
        with pytest.raises(Refused, match="the token is wrong"):
            await enrol(thief, asked, AWAY, "00" * 12)
        await enrol(Identity(tmp_path / "b", MESH, "b"), asked, AWAY, link.token.hex())
        with pytest.raises(Refused, match="was used before, by another key"):
            await enrol(thief, asked, AWAY, link.token.hex())
        assert [text.partition(":")[0] for text in warned] == ["a copied link"]
        other = sponsor(plan.address, lambda id: False)
        with pytest.raises(IdentityError, match="its key is not that of the node that made"):
            await enrol(thief, other, AWAY, link.token.hex())


async def test_the_earlier_links_of_a_name_are_dead_after_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon holds its register open; the operator's commands open it beside the daemon."""
    plan = founded(tmp_path, monkeypatch)
    own = identity_of(plan)

    def invited(again: bool = False) -> str:
        register = register_of(plan.state, own)
        token = links.read(link_for("b", plan, own, register, again=again)).token.hex()
        assert sum(not one.ended and not one.taken for one in register._files.tokens()) == 1
        return token

    async with admits(plan) as network:
        asked = sponsor(plan.address, lambda _: True)
        lost, found = (
            Identity(tmp_path / "lost", MESH, "b"),
            Identity(tmp_path / "found", MESH, "b"),
        )
        used = invited()
        await enrol(lost, asked, AWAY, used)
        assert network.trust.id_of("b") == lost.id
        first, second = invited(again=True), invited(again=True)
        for key in (lost, found):
            for dead in (used, first):
                with pytest.raises(Refused, match="the link for 'b' was replaced by a newer link"):
                    await enrol(key, asked, AWAY, dead)
        with pytest.raises(Refused, match="no token was given"):
            await enrol(lost, asked, AWAY, "")
        assert register_of(plan.state, own).tokens.end_links("b") == 1
        with pytest.raises(Refused, match="the link for 'b' was ended by its sender"):
            await enrol(found, asked, AWAY, second)
        assert network.admission is not None
        # Of two leases of the same second, the keys decide which one counts.
        network.admission.register._clock = lambda: time.time() + 2
        await enrol(found, asked, AWAY, invited(again=True))
        assert network.trust.id_of("b") == found.id
        with pytest.raises(Refused, match="the link for 'b' was replaced by a newer link"):
            await enrol(lost, asked, AWAY, used)


async def test_memory_is_given_back_after_a_crowd_of_strangers_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, trimmed = founded(tmp_path, monkeypatch), threading.Semaphore(0)
    monkeypatch.setattr(admission_module, "CROWD", 3)
    monkeypatch.setattr(admission_module, "TRIM_S", 0.0)
    monkeypatch.setattr(admission_module, "trim", trimmed.release)
    async with admits(plan) as network:
        assert network.admission is not None
        thief = Identity(tmp_path / "thief", MESH, "b")
        asked = sponsor(plan.address, lambda id: True)
        count, gone = network.admission.tls.visited, asyncio.Semaphore(0)

        def visited() -> None:
            count()
            gone.release()

        network.admission.tls.visited = visited
        for _ in range(2):
            for came in range(3):
                assert network.admission._came == came
                assert not trimmed.acquire(blocking=False)
                with pytest.raises(Refused, match="the token is wrong"):
                    await judge_token(thief, asked, AWAY, "00" * 12)
                async with asyncio.timeout(180):
                    await gone.acquire()
            assert await asyncio.to_thread(trimmed.acquire, timeout=180)


async def test_a_node_admits_nobody_until_the_mesh_key_gives_it_the_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    link, own = link_to(plan, "b"), identity_of(plan)
    given = right_of(plan.state)
    (plan.state / "admission" / "right").unlink()
    key = mesh_key_of(plan)
    async with admits(plan) as network:
        admission = network.admission
        assert admission is not None
        new, asked = Identity(tmp_path / "b", MESH, "b"), sponsor(plan.address, link.made_by)
        with pytest.raises(Unreachable, match="does not speak HTTP/2"):
            await enrol(new, asked, AWAY, link.token.hex())
        now = int(time.time())
        for name, id, signer, said in (
            ("b", own.id, key, "is no right of 'a' to admit"),
            ("a", LISTED["a"], key, "is no right of 'a' to admit"),
            ("a", own.id, own.key, "not signed by the key that it should be"),
        ):
            with pytest.raises(IdentityError, match=said):
                admission.take_right(leases.right(signer, MESH, name, id, now))
        assert admission.take_right(given).startswith("a admits newcomers until 20")
        await enrol(new, asked, AWAY, link.token.hex())
    assert right_of(plan.state) == given


async def test_a_sponsor_renews_its_own_lease_though_another_one_admitted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    (plan.state / "admission" / "enrolled.json").unlink()  # as at a node that joined by a link
    async with admits(plan) as network:
        assert network.admission is not None
        proof = await network.admission.own_lease(plan.address)
        network.identity.take_lease(proof)
        assert leases.peek(proof).signer == network.identity.id


async def test_the_operator_is_reminded_before_the_right_to_admit_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    warned = list[str]()
    async with admits(plan) as network:
        assert network.admission is not None
        network.refusals.show = lambda record: warned.append(record.text)
        network.admission.remind()
        assert warned == []
        network.identity.clock = lambda: time.time() + 300 * DAY_S
        network.admission.remind()
    assert len(warned) == 1
    assert warned[0].startswith("a may admit sites and renew leases until 20")
    assert warned[0].endswith("on the founder's machine run `fednode sponsor a`")


async def test_a_sponsor_renews_the_leases_of_members_that_another_one_admitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    async with admits(plan) as network:
        new, asked = Identity(tmp_path / "b", MESH, "b"), sponsor(plan.address, lambda _: True)
        lease = Statement(kind="lease", mesh=MESH, name="b", id=new.id, issued=int(time.time()) - 9)
        new.take_lease(leases.sign(mesh_key_of(plan), lease))
        with pytest.raises(Refused, match="no token was given"):
            await enrol(new, asked, AWAY, "")  # the mesh has not met it
        network.trust.believed("b", [Update("b", "alive", 0, AWAY, new.id, new.proof)])
        await enrol(new, asked, AWAY, "")
        assert new.lease is not None
        assert new.lease.signer == identity_of(plan).id
        other = Identity(tmp_path / "thief", MESH, "b")
        with pytest.raises(Refused, match="no token was given"):
            await enrol(other, asked, AWAY, "")
        # The founder gives the name of a lost key to another one.
        token = register_of(plan.state, identity_of(plan)).tokens.for_link("b", 7).hex()
        with pytest.raises(Refused, match="'b' belongs to another key"):
            await enrol(other, asked, AWAY, token)
        register_of(plan.state, identity_of(plan)).free("b")
        assert network.admission is not None
        # Of two leases of the same second, the keys decide which one counts.
        network.admission.register._clock = lambda: time.time() + 2
        token = register_of(plan.state, identity_of(plan)).tokens.for_link("b", 7, again=True).hex()
        await enrol(other, asked, AWAY, token)
        assert network.trust.id_of("b") == other.id


async def test_after_a_restart_a_sponsor_knows_whom_it_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    register_of(plan.state, identity_of(plan)).revoke("b", LISTED["b"])
    async with admits(plan) as network:
        assert isinstance(network.trust, Trust)
        assert network.trust.is_revoked(LISTED["b"])


@pytest.mark.parametrize("text", ["no base64 at all", "AAAA", "\udcff"])
def test_a_damaged_right_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    plan = founded(tmp_path, monkeypatch)
    (plan.state / "admission/right").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(
        StateError, match=r"right is damaged \(.*: restore it from a backup, or run"
    ):
        right_of(plan.state)


async def test_the_first_site_that_joins_is_recommended_as_a_second_sponsor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = founded(tmp_path, monkeypatch)
    caplog.set_level("INFO")
    async with admits(plan) as network:
        assert network.admission is not None
        for name in "bc":
            link = link_to(plan, name)
            new, asked = Identity(tmp_path / name, MESH, name), sponsor(plan.address, link.made_by)
            await enrol(new, asked, AWAY, link.token.hex())
            member = Member(name=name, state="alive", address=AWAY, id=new.id, proof=new.proof)
            running = SimpleNamespace(view=lambda: View((member,)), tell=lambda _: None)  # noqa: B023
            network.admission.attach(cast("Any", running), "")
    assert caplog.text.count("is the first site that joined") == 1
    assert "outlives this machine: fednode sponsor b" in caplog.text
