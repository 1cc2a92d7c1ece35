"""Enrolment over real connections: who gets a certificate, and what everybody else hears."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fednode.enrolment.words import words_of
from fednode.errors import IdentityError, Refused, Unreachable
from fednode.identity import keys
from fednode.identity.certificates import Authority, Chain, Credential
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Member
from fednode.storage.disk import alone
from fednode.transports.connection_limiter import PER_KEY
from fednode.transports.grpc import GrpcTransport
from fednode.wire.gen import enrolment_pb2 as pb
from fednode.wire.gen import enrolment_pb2_grpc
from tests.unit.enrolment.site import AWAY, MESH, Site, newcomer


def late(days: float) -> Callable[[], float]:
    """Return a clock that is ahead; after 60 days the last third of a certificate begins."""
    return lambda: time.time() + days * 24 * 3600


async def test_an_invited_site_is_told_of_the_mesh_and_becomes_a_member(tmp_path: Path) -> None:
    async with Site.create(tmp_path, "a").serving() as a:
        new = newcomer(tmp_path / "b", a.invite("b"))
        told = await new.describe()
        assert (list(told.members), a.ledger.read().holders) == (["a"], {})
        await new.enrol(AWAY)
        own = NodeIdentity(tmp_path / "b")
        assert a.ledger.read().holders == {own.name: own.id}
        assert a.roster.identify(own.own().chain) == Member("b", own.id)
        assert a.greeted == [f"b at {AWAY}"]
        # An answer that was lost is asked for again.
        await new.enrol(AWAY)
        assert NodeIdentity(tmp_path / "b").id == own.id
        assert not a.warned


async def test_a_copied_link_is_refused_and_the_operator_hears_of_it_once_a_minute(
    tmp_path: Path,
) -> None:
    async with Site.create(tmp_path, "a").serving() as a:
        invitation = a.invite("b")
        await newcomer(tmp_path / "b", invitation).enrol(AWAY)
        thief = newcomer(tmp_path / "thief", invitation)
        for now, warnings in ((0.0, 1), (59.0, 1), (60.0, 2), (61.0, 2)):
            a.now = now
            for call in (thief.describe(), thief.enrol(AWAY)):
                with pytest.raises(Refused, match="was used before, by another key"):
                    await call
            assert len(a.warned) == warnings
        assert a.warned[0].startswith("a copied link: the link for")
        assert NodeIdentity(tmp_path / "thief").id in a.warned[0]
        assert a.ledger.read().holders == {"b": NodeIdentity(tmp_path / "b").id}


async def test_a_link_that_ended_or_was_replaced_or_is_of_another_mesh_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fednode.enrolment.client.AGAIN_S", 0.0)
    async with Site.create(tmp_path, "a").serving() as a:
        ended = a.invite("b")
        a.ledger.settle("b", good=False)
        a.follow()
        with pytest.raises(Unreachable, match="it does not know the link"):
            await newcomer(tmp_path / "b", ended).describe()
        late = dataclasses.replace(a.invite("c"), sponsor="d")
        with pytest.raises(Unreachable, match="another node is there"):
            await newcomer(tmp_path / "c", late).describe()
        other = dataclasses.replace(late, mesh="other", sponsor="a")
        with pytest.raises(Unreachable, match="a node of another mesh is there"):
            await newcomer(tmp_path / "c", other).describe()


async def test_a_link_that_the_sponsor_hears_of_a_moment_later_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Site.create(tmp_path, "a").serving() as a:
        link = a.invite("b")
        a.roster.set_invitations({})

        async def looks(_: float) -> None:
            a.follow()

        monkeypatch.setattr("fednode.enrolment.client.asyncio.sleep", looks)
        assert list((await newcomer(tmp_path / "b", link).describe()).members) == ["a"]


@pytest.mark.parametrize(("ahead_s", "said"), [(-3600, "60 minutes ahead of"), (7200, "behind")])
async def test_a_clock_that_is_wrong_is_said_before_a_link_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float, said: str
) -> None:
    """ahead_s: by so much the clock of the newcomer is ahead of the sponsor's."""
    async with Site.create(tmp_path, "a").serving() as a:
        new = newcomer(tmp_path / "b", a.invite("b"))
        clock = SimpleNamespace(time=lambda: time.time() - ahead_s)
        monkeypatch.setattr("fednode.enrolment.service.time", clock)
        with pytest.raises(IdentityError, match=said):
            await new.describe()
        assert a.ledger.read().holders == {}


async def test_the_operator_compares_words_before_a_site_that_waits_is_a_member(
    tmp_path: Path,
) -> None:
    async with Site.create(tmp_path, "a").serving() as a:
        new = newcomer(tmp_path / "b", a.invite("b", approve=True))
        await new.describe()
        assert not a.asked
        for _ in range(2):
            with pytest.raises(Refused, match="the operator has to approve the key of 'b' first"):
                await new.enrol(AWAY)
        words = words_of(NodeIdentity(tmp_path / "b").id)
        assert a.asked == [
            f"b at {AWAY} asks to join, words of its key: {words}; compare them by phone, then "
            "`fednode invite --accept b` or `fednode invite --refuse b`"
        ]
        a.ledger.settle("b", good=True)
        await new.enrol(AWAY)
        assert NodeIdentity(tmp_path / "b").name == "b"


async def test_a_guest_does_not_renew_and_a_member_does_not_enrol(tmp_path: Path) -> None:
    async with Site.create(tmp_path, "a").serving() as a:
        new = newcomer(tmp_path / "c", a.invite("c"))
        with pytest.raises(Refused, match="only a member renews"):
            await new._ask("Renew", pb.RenewRequest())
        async with a.admitted(tmp_path / "b") as b:
            stub = enrolment_pb2_grpc.EnrolmentStub(await b.transport.channel(a.address, "a"))
            with pytest.raises(grpc.aio.AioRpcError, match="only an invited site enrols"):
                await stub.Enrol(pb.EnrolRequest(address=AWAY))


async def test_a_member_renews_at_any_sponsor_and_a_refusal_is_no_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    c, z = (Site.create(tmp_path, name, sponsor=False) for name in "cz")
    z.address = AWAY
    async with (
        Site.create(tmp_path, "a").serving() as a,
        c.serving(),
        a.admitted(tmp_path / "b") as b,
    ):
        a.identity.clock = late(70)
        assert await b.renews(z, c, a)
        assert a.roster.identify(b.identity.own().chain) == Member("b", b.identity.id)
        for a.now, times in ((59.0, 1), (60.0, 2)):
            await b.renews(a)
            assert caplog.messages.count("the certificate of b was renewed") == times
        with pytest.raises(Refused, match="c may not admit sites or renew certificates now"):
            await b.renews(z, c)
        with pytest.raises(Unreachable, match=r"z at .* does not answer"):
            await b.renews(z)
        with pytest.raises(Unreachable, match="no member is known that could renew it"):
            await b.renews()


ODD: dict[str, Callable[[NodeIdentity, Authority], bytes]] = {
    "its own present certificates": lambda own, sponsor: own.own().chain,
    "certificates that end before": lambda own, sponsor: sponsor.node(
        "b", own.key.public_key(), days=1
    ),
    "bytes behind certificates": lambda own, sponsor: own.own().chain + b"\xff\n",
    "no certificates": lambda own, sponsor: b"\xff",
    "more than certificates take": lambda own, sponsor: bytes(1 << 20),
}


@pytest.mark.parametrize("answer", ODD)
async def test_an_odd_answer_to_a_renewal_is_no_end(tmp_path: Path, answer: str) -> None:
    evil = Site.create(tmp_path, "evil")

    async def odd(request: Any, context: Any) -> pb.CertificateReply:
        sponsor = evil.identity.sponsor()
        assert sponsor is not None
        return pb.CertificateReply(chain=ODD[answer](own, sponsor), revocations=[b"x"])

    async with (
        Site.create(tmp_path, "a").serving() as a,
        evil.serving(odd),
        a.admitted(tmp_path / "b") as b,
    ):
        own, before = b.identity, Chain.read(b.identity.own().chain)
        a.identity.clock = late(70)
        assert await b.renews(evil, a)
        assert Chain.read(own.own().chain).sponsor == before.sponsor


async def test_a_sponsor_tells_the_keys_that_were_revoked(tmp_path: Path) -> None:
    async with Site.create(tmp_path, "a").serving() as a, a.admitted(tmp_path / "b") as b:
        a.identity.clock = late(70)
        gone = a.roster.take_revocation(MESH.revocation("x"))
        new = newcomer(tmp_path / "c", a.invite("c"))
        await new.enrol(AWAY)
        await b.renews(a)
        again = newcomer(tmp_path / "c", a.invite("d"))  # it is in the file of c
        assert all(one.roster.is_revoked(gone.id) for one in (new, b, again))


async def test_the_holder_of_a_link_has_one_account_however_many_keys_it_makes(
    tmp_path: Path,
) -> None:
    async with Site.create(tmp_path, "a").serving() as a:
        link, channels = a.invite("b"), []
        for _ in range(PER_KEY + 1):
            key = ec.generate_private_key(ec.SECP256R1())
            chain = Authority.invitation(link.token).node("b", key.public_key(), 7)
            shown = Credential(keys.pem_of(key), chain)
            guest = GrpcTransport(lambda shown=shown: shown, a.roster)  # type: ignore[misc]
            channels.append(await guest.channel(a.address, "a"))
        asked = [
            enrolment_pb2_grpc.EnrolmentStub(one).Describe(pb.DescribeRequest()) for one in channels
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, grpc.aio.AioRpcError) for one in answers) == 1
        for one in channels:
            await one.close()


async def test_a_stolen_key_renews_no_earlier_than_its_owner_would(tmp_path: Path) -> None:
    early = "a certificate is renewed in its last third"
    async with (
        Site.create(tmp_path, "a").serving() as a,
        Site.create(tmp_path, "c").serving() as c,
        a.admitted(tmp_path / "b") as b,
    ):
        for days in (0, 58):
            a.identity.clock = late(days)
            with pytest.raises(Refused, match=early):
                await b.renews(a)
        a.identity.clock = late(59.1)
        assert await b.renews(a)
        # A sponsor that was revoked is left at any time.
        with pytest.raises(Refused, match=early):
            await b.renews(c)
        c.roster.take_revocation(MESH.revocation("a"))
        assert await b.renews(c)


async def test_a_key_renews_no_more_once_a_newer_one_has_its_name(tmp_path: Path) -> None:
    async with Site.create(tmp_path, "a").serving() as a, a.admitted(tmp_path / "b") as b:
        a.identity.clock = late(70)
        assert a.roster.identify(MESH.chain("b", dated=0.01))
        with pytest.raises(Refused, match="refused: "):
            await b.renews(a)


async def test_a_node_that_is_no_sponsor_any_more_admits_nobody(tmp_path: Path) -> None:
    async with Site.create(tmp_path, "a").serving() as a:
        invitation = a.invite("b")
        a.identity.take_certificate(MESH.chain("a", sponsor=MESH.root), a.roster)
        new = newcomer(tmp_path / "b", invitation)
        for call in (new.describe(), new.enrol(AWAY)):
            with pytest.raises(Refused, match="a may not admit sites or renew certificates now"):
                await call
        assert a.ledger.read().holders == {}


async def test_a_lock_that_another_process_holds_does_not_stop_the_node(tmp_path: Path) -> None:
    async with Site.create(tmp_path, "a").serving() as a:
        b, c, d = (newcomer(tmp_path / name, a.invite(name)) for name in "bcd")
        with alone(tmp_path / "a" / "enrolment" / "lock"):  # as another process
            calls = [asyncio.create_task(one.enrol(AWAY)) for one in (b, c)]
            assert list((await d.describe()).members) == ["a"]
            assert not any(call.done() for call in calls)
        await asyncio.gather(*calls)


async def test_a_damaged_ledger_is_said_to_nobody_outside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Site.create(tmp_path, "a").serving() as a:
        new = newcomer(tmp_path / "b", a.invite("b"))
        (tmp_path / "a" / "enrolment" / "ledger.json").write_text("{")
        with pytest.raises(Refused, match="its log says why"):
            await new.enrol(AWAY)
        assert "ledger.json is damaged" in caplog.text
