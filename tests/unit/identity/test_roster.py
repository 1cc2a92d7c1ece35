"""Whom a node believes: certificates, invitations and revocations, against every kind of thief."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.core.types import MemberUpdate
from fednode.errors import IdentityError, StateError
from fednode.identity.certificates import Authority, Chain, Revocation
from fednode.identity.roster import FOREIGN, Guest, Member
from tests.unit.identity.people import NOW, SmallMesh, invitation_key

DAY = 86_400
TOKEN = bytes(range(16))
END = b"-----END CERTIFICATE-----\n"


@pytest.fixture
def mesh() -> SmallMesh:
    return SmallMesh()


def news(name: str, chain: bytes = b"", state: str = "alive", **more: str) -> MemberUpdate:
    address = more.get("address", f"{name}:7000")
    proof = Chain.read(chain).pack() if chain else b""
    return MemberUpdate(name, state, 0, address, more.get("id", ""), proof)  # type: ignore[arg-type]


def strangers(mesh: SmallMesh) -> dict[str, bytes]:
    """Return chains that make nobody a member; TOKEN's invitation is open, key b a member's."""
    key, root, sponsor, guests = mesh.key("b"), mesh.root, mesh.sponsor, Authority.invitation(TOKEN)
    public, thief = key.public_key(), mesh.key("thief").public_key()
    odd = ec.generate_private_key(ec.SECP384R1())
    b, foreign = ((*one.chain("b").partition(END),) for one in (mesh, SmallMesh()))

    def by(name: str, above: bytes = b"") -> bytes:
        return Authority(name, key, above).node("c", thief)

    return {
        "nothing": b"",
        "a leaf alone": b[0] + END,
        "a sponsor alone": b[2],
        "a sponsor below its leaf": b[2] + b[0] + END,
        "of another mesh": b"".join(foreign),
        "of another mesh, below this one's sponsor": foreign[0] + END + b[2],
        "signed by a member": by("b", mesh.chain("b")),
        "signed by a member that the mesh key signed": by("b", root.node("b", public)),
        "signed by a member with a sponsor's name": by("sponsor b", root.node("sponsor b", public)),
        "signed in a sponsor's name": by("sponsor a", sponsor.chain),
        "a sponsor's sponsor": by("sponsor b", sponsor.sponsor("b", public) + sponsor.chain),
        "a guest's sponsor": by("sponsor b", guests.sponsor("b", public)),
        "signed in an invitation's name": by(guests.name),
        "of a key on another curve": guests.node("b", odd.public_key()),
    }


class TestMembers:
    @pytest.mark.parametrize("signer", ["sponsor", "root"])
    def test_a_chain_makes_a_member(self, mesh: SmallMesh, signer: str) -> None:
        roster, id = mesh.roster(), mesh.id("b")
        chain = getattr(mesh, signer).node("b", mesh.key("b").public_key())
        assert roster.identify(chain) == Member("b", id)
        assert (roster.name_of(id), roster.id_of("b")) == ("b", id)
        assert roster.check_sender(id, "b") == ""
        assert "cannot speak for 'a'" in roster.check_sender(id, "a")

    def test_other_chains_are_nobodys(self, mesh: SmallMesh) -> None:
        roster = mesh.roster()
        roster.set_invitations({invitation_key(TOKEN): "hospital-b"})
        for what, chain in strangers(mesh).items():
            assert roster.identify(chain) is None, what
            assert roster.explain(chain) == FOREIGN, what

    @pytest.mark.parametrize(
        ("sponsor_days", "days", "said"),
        [
            (365, 89, ""),
            (365, 91, "its certificate ended on"),
            (365, -1, "check the clocks"),
            (10, 11, "its certificate ended on"),
        ],
    )
    def test_ends_and_beginnings_count(
        self, mesh: SmallMesh, sponsor_days: float, days: float, said: str
    ) -> None:
        roster, id = mesh.roster(), mesh.id("b")
        chain = mesh.chain("b", 90, mesh.sponsor_of("a", sponsor_days))
        assert roster.identify(chain) == Member("b", id)
        roster.clock = lambda: time.time() + days * DAY
        assert roster.identify(chain) == (None if said else Member("b", id))
        assert (roster.id_of("b"), roster.name_of(id)) == (("", "") if said else (id, "b"))
        assert said in roster.explain(chain)


class TestTwoCertificatesOfOneName:
    @pytest.mark.parametrize("days", [-10, -5])
    @pytest.mark.parametrize("signer", ["a", "s"])
    def test_the_newer_counts_and_of_one_second_the_greater_id(
        self, mesh: SmallMesh, days: float, signer: str
    ) -> None:
        signers = ((days, mesh.sponsor), (-5, mesh.sponsor_of(signer)))
        chains = [(dated(mesh, "b", at, by), mesh.id("b")) for at, by in signers]
        chains.sort(key=lambda one: (Chain.read(one[0]).own.begins, one[1]))
        (old, old_id), (new, new_id) = chains
        for order in (chains, reversed(chains)):
            roster = mesh.roster()
            for chain, _ in order:
                roster.identify(chain)
            assert roster.identify(new) == Member("b", new_id)
            assert roster.identify(old) is None
            assert "a newer certificate of its name" in roster.explain(old)
            assert roster.name_of(old_id) == ""

    def test_a_name_is_with_its_first_key_again_if_the_sponsor_of_the_newer_is_revoked(
        self, mesh: SmallMesh
    ) -> None:
        true, id = dated(mesh, "b", -10), mesh.id("b")
        stolen = dated(mesh, "b", -5, mesh.sponsor_of("s"))
        roster = mesh.roster()
        roster.identify(true)
        assert roster.identify(stolen)
        roster.take_revocation(mesh.revocation("s"))
        assert roster.id_of("b") == id
        assert roster.identify(true) == Member("b", id)
        assert roster.identify(stolen) is None


def dated(mesh: SmallMesh, name: str, days: float, sponsor: Authority | None = None) -> bytes:
    """Return the certificate of a new key of a node, dated some days from now."""
    mesh.keys.pop(name, None)
    return mesh.chain(name, 90, sponsor, dated=days)


class TestRevocation:
    @pytest.mark.parametrize("moment", [0, NOW, 2**40])
    def test_a_thief_of_a_key_is_refused_everywhere(self, mesh: SmallMesh, moment: int) -> None:
        """moment: the date of the revocation, which holds whatever it is."""
        roster, chain = mesh.roster("a", "b"), mesh.chain("b")
        proof = mesh.revocation("b", moment=moment)
        assert roster.take_revocation(proof) == MemberUpdate(
            "b", "revoked", id=mesh.id("b"), proof=proof
        )
        assert roster.identify(chain) is None
        assert roster.identify(mesh.chain("b")) is None  # renewed by a sponsor that did not know
        assert roster.explain(chain) == "its key was revoked by the mesh key"
        assert roster.proof(chain) == proof
        assert "was revoked" in roster.check_sender(mesh.id("b"), "b")
        assert (roster.id_of("b"), roster.name_of(mesh.id("b"))) == ("", "")
        assert roster.is_revoked(mesh.id("b"))
        assert roster.identify(mesh.chain("a"))
        assert roster.proof(mesh.chain("a")) == b""
        del mesh.keys["b"]
        assert roster.identify(mesh.chain("b")) == Member("b", mesh.id("b")), "a new key"

    def test_with_a_sponsor_goes_what_it_signed_but_for_members_that_were_met(
        self, mesh: SmallMesh
    ) -> None:
        sponsor = mesh.sponsor_of("s")
        met, unknown = mesh.chain("b", 90, sponsor), mesh.chain("c", 90, sponsor)
        roster = mesh.roster()
        assert roster.identify(met)
        roster.take_revocation(mesh.revocation("s"))
        assert roster.identify(met) == Member("b", mesh.id("b"))
        assert roster.identify(unknown) is None
        assert "the key of its sponsor s was revoked" in roster.explain(unknown)
        assert roster.proof(unknown) == mesh.revocation("s")
        assert roster.identify(sponsor.node("s", mesh.key("s").public_key())) is None

    @pytest.mark.parametrize("days", [-30, -1, 0])
    def test_a_revoked_sponsor_dates_back_in_vain(self, mesh: SmallMesh, days: int) -> None:
        sponsor = mesh.sponsor_of("s")
        roster = mesh.roster()
        assert roster.identify(mesh.chain("b", 90, sponsor))
        roster.take_revocation(mesh.revocation("s"))
        assert roster.identify(dated(mesh, "x", days, sponsor)) is None
        assert roster.identify(dated(mesh, "b", days, sponsor)) is None  # another key for b

    def test_only_the_mesh_key_revokes(self, mesh: SmallMesh) -> None:
        roster, other = mesh.roster("b"), SmallMesh()
        statement = Revocation("mesh", "b", mesh.id("b"), 0)
        for signer in (other.mesh_key, Ed25519PrivateKey.generate()):
            with pytest.raises(IdentityError, match="did not sign"):
                roster.take_revocation(statement.sign(signer))
        foreign = Revocation("other", "b", mesh.id("b"), 0).sign(mesh.mesh_key)
        with pytest.raises(IdentityError, match="for the mesh 'other'"):
            roster.take_revocation(foreign)
        for proof in (b"", b"x" * 70, mesh.revocation("b")[:-1], b"x" * 2000):
            with pytest.raises(IdentityError):
                roster.take_revocation(proof)
        assert roster.identify(mesh.chain("b"))

    def test_it_outlives_the_process(self, mesh: SmallMesh, tmp_path: Path) -> None:
        heard, file = list[int](), tmp_path / "revoked"
        proofs = mesh.revocation("a"), mesh.revocation("b")
        roster, again = mesh.roster(), mesh.roster("c")
        roster.keep_in(file)
        roster.on_revoked = lambda: heard.append(1)
        roster.learn_revocations(proofs * 2)
        assert heard == [1, 1]
        again.keep_in(file)
        assert again.revocations() == proofs
        assert again.identify(mesh.chain("b")) is None
        assert again.identify(mesh.chain("c")), "who was known before the file was read stays"
        assert again.identify(mesh.chain("d")) is None
        file.write_text("x\n")
        with pytest.raises(StateError, match="which keys were revoked is not known"):
            mesh.roster().keep_in(file)


class TestInvitations:
    def guest(self, mesh: SmallMesh, name: str = "hospital-b") -> bytes:
        return Authority.invitation(TOKEN).node(name, mesh.key("guest").public_key(), 7)

    def test_a_guest_comes_while_its_invitation_is_open(self, mesh: SmallMesh) -> None:
        roster, guest = mesh.roster(), self.guest(mesh, "a")
        assert roster.identify(guest) is None
        opened, root = {invitation_key(TOKEN): "hospital-b"}, roster.anchors
        roster.set_invitations(opened)
        assert roster.identify(guest) == Guest("hospital-b", mesh.id("guest"))
        assert (roster.name_of(mesh.id("guest")), roster.id_of("a")) == ("", "")
        assert roster.anchors.count(b"BEGIN") == 2
        version = roster.version
        roster.set_invitations(opened)
        assert roster.version == version
        roster.set_invitations({})
        assert roster.identify(guest) is None
        assert roster.version == version + 1
        assert roster.anchors == root
        roster.set_invitations(opened)
        roster.take_revocation(mesh.revocation("guest"))
        assert roster.identify(guest) is None

    def test_a_relay_knows_the_guests_of_each_node(self, mesh: SmallMesh) -> None:
        roster, guest = mesh.roster(), self.guest(mesh)
        key = invitation_key(TOKEN)
        roster.set_invitations({key: "x"}, by="b")
        roster.set_invitations({key: "y"}, by="c")  # the same one: the first node's counts
        roster.set_invitations({invitation_key(bytes(16)): "z"})
        assert roster.identify(guest) == Guest("x", mesh.id("guest"), "b")
        roster.set_invitations({}, by="b")
        assert roster.identify(guest) is None
        assert roster.anchors.count(b"BEGIN") == 2

    def test_bytes_that_are_no_invitation_open_nothing(self, mesh: SmallMesh) -> None:
        """TLS takes no roots at all if one of them is odd."""
        roster, key = mesh.roster(), invitation_key(TOKEN)
        root = roster.anchors
        odd = [b"", b"x", key[:-1], key + b"x", b"\x05" + key[1:], bytes(33), mesh.chain("b")]
        roster.set_invitations(dict.fromkeys(odd, "x"), by="b")
        assert roster.anchors == root
        roster.set_invitations(dict.fromkeys([*odd, key], "x"), by="b")
        assert roster.anchors.count(b"BEGIN") == 2
        assert isinstance(roster.identify(self.guest(mesh)), Guest)

    def test_no_guest_comes_by_gossip(self, mesh: SmallMesh) -> None:
        roster = mesh.roster("a")
        roster.set_invitations({invitation_key(TOKEN): "b"})
        assert roster.filter_gossip("a", [news("b", self.guest(mesh, "b"))]) == ()


class TestGhosts:
    """A sponsor certifies names that nobody runs, and tells them to others."""

    def ghosts(self, sponsor: Authority, count: int) -> list[bytes]:
        key = ec.generate_private_key(ec.SECP256R1()).public_key()
        return [sponsor.node(f"ghost-{at}", key) for at in range(count)]

    def test_they_leave_with_their_sponsor(self, mesh: SmallMesh) -> None:
        roster, sponsor = mesh.roster("a", "b"), mesh.sponsor_of("s")
        called, told = self.ghosts(sponsor, 2)
        assert roster.identify(called)
        assert roster.filter_gossip("s", [news("ghost-1", told)])
        roster.take_revocation(mesh.revocation("s"))
        assert roster.identify(told) is None
        assert roster.identify(called), "what called before stays, until it is removed itself"
        assert roster.identify(mesh.chain("b"))

    def test_they_leave_room_for_others(
        self, mesh: SmallMesh, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fednode.identity.roster.NAMES_OF_SIGNER_MAX", 10)
        monkeypatch.setattr("fednode.identity.roster.NAMES_MAX", 20)
        roster = mesh.roster("a", "b")
        for name in "stuv":
            told = self.ghosts(mesh.sponsor_of(name), 15)
            roster.filter_gossip(name, [news(f"ghost-{at}", one) for at, one in enumerate(told)])
        assert len(roster._chains) <= 20
        for name in "abcdefgh":
            assert roster.identify(mesh.chain(name)), name
        callers = self.ghosts(mesh.sponsor_of("w"), 15)
        assert sum(bool(roster.identify(one)) for one in callers) <= 10

    def test_of_many_keys_of_one_name_the_last_is_remembered(self, mesh: SmallMesh) -> None:
        roster = mesh.roster("b")
        for day in range(5):
            assert roster.identify(dated(mesh, "ghost", day - 9, mesh.sponsor_of("s")))
        assert roster._callers == {("b", mesh.id("b")), ("ghost", mesh.id("ghost"))}

    def test_chains_that_are_too_long_are_not_kept(self, mesh: SmallMesh) -> None:
        roster = mesh.roster()
        for number in range(10):
            assert roster.identify(mesh.chain("b") + b"\n" * (10_000 + number)) is None
        assert roster._read.cache_info().currsize == 0


class TestGossip:
    def test_hearsay_brings_nobody_in_without_a_certificate(self, mesh: SmallMesh) -> None:
        roster = mesh.roster("a")
        assert roster.filter_gossip("a", [news("x", id=mesh.id("x"))]) == ()
        assert roster.filter_gossip("a", [news("x", SmallMesh().chain("x"))]) == ()
        [told] = roster.filter_gossip("a", [news("b", mesh.chain("b"), id="false")])
        assert told.id == mesh.id("b") == roster.id_of("b")
        assert told.address == "b:7000"

    def test_a_certificate_of_another_name_is_not_passed_on(self, mesh: SmallMesh) -> None:
        roster = mesh.roster("a", "b")
        [told] = roster.filter_gossip("a", [news("b", mesh.chain("c"))])
        assert (told.id, told.proof) == (mesh.id("b"), b"")

    def test_only_a_member_itself_changes_an_address_of_peers_yaml(self, mesh: SmallMesh) -> None:
        roster = mesh.roster("a", "b", "c", listed={"b"})
        told = roster.filter_gossip("a", [news("b"), news("c")])
        assert [one.address for one in told] == ["", "c:7000"]
        assert roster.filter_gossip("b", [news("b")])[0].address == "b:7000"

    def test_revocations_spread(self, mesh: SmallMesh) -> None:
        roster = mesh.roster("a", "b")
        proof = mesh.revocation("b")
        told = MemberUpdate("b", "revoked", id=mesh.id("b"), proof=proof)
        assert roster.filter_gossip("a", [told]) == (told,)
        assert roster.is_revoked(mesh.id("b"))
        del mesh.keys["b"]
        assert roster.identify(mesh.chain("b"))  # b has joined again
        assert roster.filter_gossip("a", [told]) == ()
        false = MemberUpdate("a", "revoked", id=mesh.id("a"), proof=b"x" * 100)
        assert roster.filter_gossip("b", [false]) == ()


def test_sponsors_are_known_by_what_they_signed(mesh: SmallMesh) -> None:
    roster = mesh.roster("b")
    roster.identify(mesh.chain("c", 90, mesh.sponsor_of("s")))
    assert roster.sponsors() == ["a", "s"]
    roster.take_revocation(mesh.revocation("s"))
    assert roster.sponsors() == ["a"]


def test_the_latest_right_of_a_sponsor_counts(mesh: SmallMesh) -> None:
    roster = mesh.roster()
    for at, days in enumerate((30, 365, 10)):
        assert roster.identify(mesh.chain("b", 5, mesh.sponsor_of("s", days), at / 10 - 1))
    roster.clock = lambda: time.time() + 100 * DAY
    assert roster.sponsors() == ["s"]
