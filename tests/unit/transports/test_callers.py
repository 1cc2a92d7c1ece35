"""Who may call: members, guests with an open invitation, and nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fednode.errors import KeyRefused, Unreachable
from fednode.identity import certificates
from fednode.identity.certificates import Authority, Credential
from fednode.identity.keys import id_of, pem_of
from fednode.identity.roster import Member, Roster
from fednode.transports.grpc import GrpcTransport
from tests.meshes import Mesh
from tests.unit.identity.people import credential_of, invitation_key

ANY = "127.0.0.1:0"
TOKEN = bytes(range(16))


async def tell(frame: bytes, caller: str = "") -> bytes:
    return caller.encode()


def leaf_id(shown: Credential) -> str:
    return id_of(x509.load_pem_x509_certificates(shown.chain)[0].public_key())  # type: ignore[arg-type]


def guest_of(token: bytes, name: str = "hospital-b") -> Credential:
    """Return what a newcomer shows: its own key, signed with the token's key."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Credential(pem_of(key), Authority.invitation(token).node(name, key.public_key(), 7))


async def outcome(server: GrpcTransport, to: str, shown: Credential, roster: Roster) -> str:
    """Return the caller's id as the server sees it, or the sentence of a failed call."""
    one = GrpcTransport(lambda: shown, roster)
    try:
        return (await one.send(to, b"x", 10.0, "v")).decode()
    except Unreachable as fault:
        return str(fault)
    finally:
        await one.close()


class TestHandshake:
    async def test_members_are_known_and_others_are_cut_off(self) -> None:
        mesh, other = Mesh.new(), Mesh.new()
        server = mesh.transport("v")
        to = await server.listen(ANY, tell)
        shown = mesh.own("a")()
        assert await outcome(server, to, shown, mesh.roster()) == leaf_id(shown)
        for stranger in (other.own("a")(), guest_of(TOKEN)):
            assert "does not know this node" in await outcome(server, to, stranger, mesh.roster())
        await server.close()

    async def test_a_leaf_signs_no_leaf(self) -> None:
        mesh = Mesh.new()
        server = mesh.transport("v")
        to = await server.listen(ANY, tell)
        member = mesh.own("a")()
        held: Any = load_pem_private_key(member.key, None)
        forged = credential_of(Authority("a", held, member.chain), "b")
        assert "does not know this node" in await outcome(server, to, forged, mesh.roster())
        assert mesh.roster().identify(forged.chain) is None
        await server.close()

    async def test_a_caller_reaches_the_node_that_it_names_and_no_other(self) -> None:
        mesh = Mesh.new()
        server = mesh.transport("v")
        to = await server.listen(ANY, tell)
        one = mesh.transport("a")
        with pytest.raises(Unreachable, match="another node"):
            await one.send(to, b"x", 5.0, "w")
        assert await one.send(to, b"x", 5.0, "v")
        await one.close()
        await server.close()


class TestInvitation:
    async def test_it_opens_the_door_and_closes_it(self) -> None:
        mesh = Mesh.new()
        roster = mesh.roster()
        server = GrpcTransport(mesh.own("v"), roster)
        to = await server.listen(ANY, tell)
        guest = guest_of(TOKEN)
        assert "does not know this node" in await outcome(server, to, guest, mesh.roster())
        roster.set_invitations({invitation_key(TOKEN): "hospital-b"})
        said = await outcome(server, to, guest, mesh.roster())
        assert said.endswith("refuses this node: hospital-b is invited, and no member yet")
        roster.set_invitations({})
        assert "does not know this node" in await outcome(server, to, guest, mesh.roster())
        await server.close()


class TestCallee:
    """Who may answer in a node's name, once the mesh key has revoked a key."""

    async def send(self, mesh: Mesh, roster: Roster, shown: Credential, *later: str) -> list[str]:
        """Return what comes of calls to b, where a key of b's name answers: first without, then
        with the revocations of further names."""
        server = GrpcTransport(lambda: shown, mesh.roster())
        to = await server.listen(ANY, tell)
        one, outcomes = mesh.transport("a", roster=roster), list[str]()
        for revoked in ("", *later):
            if revoked:
                roster.take_revocation(mesh.revocation(revoked))
            try:
                outcomes.append("reached" if await one.send(to, b"x", 5.0, "b") else "")
            except Unreachable as fault:
                outcomes.append(str(fault))
        await one.close()
        await server.close()
        return outcomes

    async def test_a_revoked_key_gets_nothing_once_the_site_is_back(self) -> None:
        mesh = Mesh.new()
        stolen, roster = mesh.credential("b"), mesh.roster()
        roster.take_revocation(mesh.revocation("b"))
        assert roster.identify(credential_of(mesh.sponsor, "b").chain)
        (outcome,) = await self.send(mesh, roster, stolen)
        assert "another node" in outcome

    async def test_a_key_of_a_revoked_sponsor_gets_nothing_though_a_connection_is_open(
        self,
    ) -> None:
        mesh = Mesh.new()
        sponsor, roster = mesh.sponsor_of("s"), mesh.roster()
        assert roster.identify(mesh.chain("b"))
        thief = mesh.key("thief")
        forged = Credential(pem_of(thief), sponsor.node("b", thief.public_key()))
        before, after = await self.send(mesh, roster, forged, "s")
        assert before == "reached"
        assert "of a sponsor or key that the mesh revoked" in after

    async def test_a_revoked_sponsor_names_the_true_key_in_vain(self) -> None:
        mesh = Mesh.new()
        sponsor, roster = mesh.sponsor_of("s"), mesh.roster()
        member = roster.identify(mesh.chain("b"))
        assert isinstance(member, Member)
        with pytest.MonkeyPatch.context() as patch:  # the sponsor writes what it likes
            patch.setattr(certificates, "id_of", lambda _: member.id)
            forged = credential_of(sponsor, "b")
        before, after = await self.send(mesh, roster, forged, "s")
        assert before == "reached"
        assert "of a sponsor or key that the mesh revoked" in after

    async def test_members_are_reached_whoever_signed_them(self) -> None:
        mesh = Mesh.new()
        signers = mesh.sponsor, mesh.sponsor_of("s"), mesh.root
        for signer in signers:
            roster, key = mesh.roster(), mesh.key("b")
            shown = Credential(pem_of(key), signer.node("b", key.public_key()))
            assert roster.identify(shown.chain)
            assert await self.send(mesh, roster, shown, "x", "s") == ["reached"] * 3

    async def test_a_certificate_that_a_known_sponsor_renewed_will_do(self) -> None:
        """Of a revoked sponsor's members, all renew at once, and nobody knows the others' yet."""
        mesh = Mesh.new()
        key, other = mesh.key("b"), mesh.sponsor_of("c")
        for signer in (mesh.sponsor, other):
            roster = mesh.roster()
            assert roster.identify(mesh.chain("b", sponsor=mesh.sponsor_of("s")))
            assert roster.identify(signer.node("a", mesh.key("a").public_key()))
            renewed = Credential(pem_of(key), signer.node("b", key.public_key(), 80))
            assert await self.send(mesh, roster, renewed, "s") == ["reached"] * 2


class TestRevocation:
    async def test_calls_are_refused_with_the_proof(self) -> None:
        mesh = Mesh.new()
        roster = mesh.roster()
        server = GrpcTransport(mesh.own("v"), roster)
        to = await server.listen(ANY, tell)
        shown, known = mesh.own("a")(), mesh.roster()
        one = GrpcTransport(lambda: shown, known)
        await one.send(to, b"x", 5.0, "v")
        roster.take_revocation(proof := mesh.revocation("a"))
        with pytest.raises(KeyRefused, match="the mesh revoked this node's key"):
            await one.send(to, b"x", 5.0, "v")
        assert known.revocations() == (proof,)
        await one.close()
        await server.close()


class TestRenewal:
    async def test_both_ends_show_a_new_certificate_without_a_restart(self) -> None:
        mesh = Mesh.new()
        held = {name: mesh.own(name)() for name in "va"}
        server = GrpcTransport(lambda: held["v"], mesh.roster())
        to = await server.listen(ANY, tell)
        one = GrpcTransport(lambda: held["a"], mesh.roster())
        before = (await one.send(to, b"x", 5.0, "v")).decode()
        while leaf_id(held["a"]) <= before:  # of two certificates of a second, the greater counts
            mesh.keys.clear()
            held["a"], held["v"] = mesh.own("a")(), mesh.own("v")()
        assert await one.send(to, b"x", 5.0, "v") == leaf_id(held["a"]).encode()
        await one.close()
        await server.close()


class TestDisconnect:
    async def test_a_key_that_is_turned_away_is_cut_off_and_comes_back(self) -> None:
        mesh = Mesh.new()
        server = mesh.transport("v")
        to = await server.listen(ANY, tell)
        one = mesh.transport("a")
        caller = (await one.send(to, b"x", 5.0, "v")).decode()
        server.disconnect(caller, 0.5)
        with pytest.raises(Unreachable):
            await one.send(to, b"x", 0.3, "v")
        async with asyncio.timeout(10):
            while True:
                try:
                    await one.send(to, b"x", 5.0, "v")
                    break
                except Unreachable:
                    pass
        await one.close()
        await server.close()
