"""Who may call: members, guests with an open invitation, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
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
from tests.contract.transport_suite import GUARD_S
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


async def serving(mesh: Mesh, roster: Roster | None = None) -> str:
    """Return the address of a node `v`."""
    return await mesh.transport("v", roster=roster).listen(ANY, tell)


async def outcome(mesh: Mesh, to: str, shown: Credential) -> str:
    """Return the caller's id as the server sees it, or the sentence of a failed call."""
    try:
        return (await mesh.transport("", own=shown).send(to, b"x", 10.0, "v")).decode()
    except Unreachable as fault:
        return str(fault)


async def test_members_are_known_and_others_are_cut_off(mesh: Mesh) -> None:
    to, shown = await serving(mesh), mesh.credential("a")
    assert await outcome(mesh, to, shown) == leaf_id(shown)
    for stranger in (Mesh().credential("a"), guest_of(TOKEN)):
        assert "does not know this node" in await outcome(mesh, to, stranger)


async def test_a_leaf_signs_no_leaf(mesh: Mesh) -> None:
    to, member = await serving(mesh), mesh.credential("a")
    held: Any = load_pem_private_key(member.key, None)
    forged = credential_of(Authority("a", held, member.chain), "b")
    assert "does not know this node" in await outcome(mesh, to, forged)
    assert mesh.roster().identify(forged.chain) is None


async def test_a_caller_reaches_the_node_that_it_names_and_no_other(mesh: Mesh) -> None:
    to, one = await serving(mesh), mesh.transport("a")
    with pytest.raises(Unreachable, match="another node"):
        await one.send(to, b"x", 5.0, "w")
    assert await one.send(to, b"x", 5.0, "v")


async def test_an_invitation_opens_the_door_and_closes_it(mesh: Mesh) -> None:
    roster, guest = mesh.roster(), guest_of(TOKEN)
    to = await serving(mesh, roster)
    assert "does not know this node" in await outcome(mesh, to, guest)
    roster.set_invitations({invitation_key(TOKEN): "hospital-b"})
    said = await outcome(mesh, to, guest)
    assert said.endswith("refuses this node: hospital-b is invited, and no member yet")
    roster.set_invitations({})
    assert "does not know this node" in await outcome(mesh, to, guest)


# Who may answer in a node's name, once the mesh key has revoked a key


async def answered(mesh: Mesh, roster: Roster, shown: Credential, *later: str) -> list[str]:
    """Return what comes of calls to b, where a key of b's name answers: first without, then with
    the revocations of further names."""
    to = await mesh.transport("b", own=shown).listen(ANY, tell)
    one, outcomes = mesh.transport("a", roster=roster), list[str]()
    for revoked in ("", *later):
        if revoked:
            roster.take_revocation(mesh.revocation(revoked))
        try:
            outcomes.append("reached" if await one.send(to, b"x", 5.0, "b") else "")
        except Unreachable as fault:
            outcomes.append(str(fault))
    return outcomes


async def test_a_revoked_key_gets_nothing_once_the_site_is_back(mesh: Mesh) -> None:
    stolen, roster = mesh.credential("b"), mesh.roster()
    roster.take_revocation(mesh.revocation("b"))
    assert roster.identify(credential_of(mesh.sponsor, "b").chain)
    (outcome,) = await answered(mesh, roster, stolen)
    assert "another node" in outcome


@pytest.mark.parametrize("names_the_true_key", [False, True])
async def test_a_key_of_a_revoked_sponsor_gets_nothing_though_a_connection_is_open(
    mesh: Mesh, names_the_true_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sponsor, roster = mesh.sponsor_of("s"), mesh.roster()
    member = roster.identify(mesh.chain("b"))
    assert isinstance(member, Member)
    with monkeypatch.context() as patch:
        if names_the_true_key:  # the sponsor writes what it likes
            patch.setattr(certificates, "id_of", lambda _: member.id)
        forged = credential_of(sponsor, "b")
    before, after = await answered(mesh, roster, forged, "s")
    assert before == "reached"
    assert "of a sponsor or key that the mesh revoked" in after


async def test_members_are_reached_whoever_signed_them(mesh: Mesh) -> None:
    for signer in (mesh.sponsor, mesh.sponsor_of("s"), mesh.root):
        roster, key = mesh.roster(), mesh.key("b")
        shown = Credential(pem_of(key), signer.node("b", key.public_key()))
        assert roster.identify(shown.chain)
        assert await answered(mesh, roster, shown, "x", "s") == ["reached"] * 3


async def test_a_certificate_that_a_known_sponsor_renewed_will_do(mesh: Mesh) -> None:
    """Of a revoked sponsor's members, all renew at once, and nobody knows the others' yet."""
    key, other = mesh.key("b"), mesh.sponsor_of("c")
    for signer in (mesh.sponsor, other):
        roster = mesh.roster()
        assert roster.identify(mesh.chain("b", sponsor=mesh.sponsor_of("s")))
        assert roster.identify(signer.node("a", mesh.key("a").public_key()))
        renewed = Credential(pem_of(key), signer.node("b", key.public_key(), 80))
        assert await answered(mesh, roster, renewed, "s") == ["reached"] * 2


async def test_calls_of_a_revoked_key_are_refused_with_the_proof(mesh: Mesh) -> None:
    roster, known = mesh.roster(), mesh.roster()
    to, one = await serving(mesh, roster), mesh.transport("a", roster=known)
    await one.send(to, b"x", 5.0, "v")
    roster.take_revocation(proof := mesh.revocation("a"))
    with pytest.raises(KeyRefused, match="the mesh revoked this node's key"):
        await one.send(to, b"x", 5.0, "v")
    assert known.revocations() == (proof,)


async def test_both_ends_show_a_new_certificate_without_a_restart(mesh: Mesh) -> None:
    held = {name: mesh.credential(name) for name in "va"}
    server = GrpcTransport(lambda: held["v"], mesh.roster())
    to = await server.listen(ANY, tell)
    one = GrpcTransport(lambda: held["a"], mesh.roster())
    before = (await one.send(to, b"x", 5.0, "v")).decode()
    while leaf_id(held["a"]) <= before:  # of two certificates of a second, the greater counts
        mesh.keys.clear()
        held = {name: mesh.credential(name) for name in "va"}
    assert await one.send(to, b"x", 5.0, "v") == leaf_id(held["a"]).encode()
    await asyncio.gather(one.close(), server.close())


async def test_a_key_that_is_turned_away_is_cut_off_and_comes_back(mesh: Mesh) -> None:
    server, one = mesh.transport("v"), mesh.transport("a")
    to = await server.listen(ANY, tell)
    caller = (await one.send(to, b"x", 5.0, "v")).decode()
    server.disconnect(caller, 0.5)
    with pytest.raises(Unreachable):
        await one.send(to, b"x", 0.3, "v")
    async with asyncio.timeout(GUARD_S):
        while True:
            with contextlib.suppress(Unreachable):
                await one.send(to, b"x", 5.0, "v")
                break
