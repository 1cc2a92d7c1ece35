"""Whom a node believes: ids of peers.yaml, leases, successions; never the revoked or expired."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from fednode.core.types import Update
from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity.certificate import mint
from fednode.identity.lease import DAY_S, SKEW_S, armour
from fednode.identity.trust import Trust
from tests.unit.identity.people import (
    LISTED,
    NOW,
    STRANGER,
    A,
    B,
    der,
    lease,
    made_key,
    revocation,
    succession,
    trust,
)

LISTED_C = keys.node_id(STRANGER)


def shown(
    believes: Trust,
    key: Any,
    name: str = "x",
    proof: bytes = b"",
    who: str = "",
    days: float = 30,
    at: float = NOW,
) -> str:
    """Return why a certificate is refused; "" where it is not."""
    return believes.judge(der(mint(key, name, proof, at, days)), who)[1]


def test_listed_ids_come_in_and_others_do_not() -> None:
    assert shown(trust(), A) == ""
    assert "no such id is in peers.yaml" in shown(trust(), STRANGER, "a")
    assert shown(trust(), A, who="b") == "it is 'a', not 'b'"


@pytest.mark.parametrize(("hours", "good"), [(-23, True), (-25, False), (0, True), (1, True)])
def test_clocks_may_differ_by_hours(hours: float, good: bool) -> None:
    """at: what the other end's clock said when it made its certificate."""
    assert (shown(trust(), A, at=NOW - hours * 3600) == "") == good


def test_a_certificate_that_ends_in_no_year_is_refused() -> None:
    """Python's years begin at 1; those of X.509 at 0."""
    moment = datetime.datetime(2060, 1, 1, tzinfo=datetime.UTC).timestamp()
    made = mint(A, "a", b"", moment, days=0)
    body = made.tbs_certificate_bytes
    changed = body.replace(b"20600101000000Z", b"00000101000000Z")
    data = der(made).replace(body, changed)[:-64] + A.sign(changed)
    assert changed != body
    assert trust().judge(data) == ("", "its certificate cannot be read")


def test_an_expired_certificate_is_named() -> None:
    text = shown(trust(), A, days=5, at=NOW - 6 * DAY_S)
    assert text == "its certificate expired 24.0 hours ago: restart that node to renew it"


def test_a_lease_of_the_mesh_key_brings_a_name() -> None:
    believes = trust({})
    assert shown(believes, STRANGER, proof=lease("s", STRANGER)) == ""
    assert believes.name_of(keys.node_id(STRANGER)) == "s"
    assert believes.refusal(keys.node_id(STRANGER), "s") == ""
    assert "cannot speak for 'a'" in believes.refusal(keys.node_id(STRANGER), "a")


@pytest.mark.parametrize(
    ("proof", "text"),
    [
        (lease("s", STRANGER, signer=A), "not signed by the key"),
        (lease("s", B), "for another key"),
        (lease("s", STRANGER, mesh="other"), "for the mesh 'other'"),
        (lease("s", STRANGER, expires=NOW - 7200), "expired 2.0 hours ago"),
        (lease("s", STRANGER, issued=NOW + SKEW_S + 60), "from the future"),
        (lease("a", STRANGER), "peers.yaml gives 'a' another id"),
        (lease("s", STRANGER)[:-9], "not signed|no statement"),
        (revocation("s", STRANGER), "for another key"),
        (b"x" * 100, "no statement"),
    ],
)
def test_what_is_wrong_with_a_lease_is_named(proof: bytes, text: str) -> None:
    import re

    assert re.search(text, shown(trust(), STRANGER, proof=proof))


def test_a_newer_lease_of_a_name_replaces_the_older_and_not_the_other_way_round() -> None:
    believes = trust({})
    assert shown(believes, A, proof=lease("s", A)) == ""
    assert shown(believes, B, proof=lease("s", B, issued=NOW + 60)) == ""
    assert "newer lease" in shown(believes, A, proof=lease("s", A))
    assert believes.name_of(keys.node_id(A)) == ""


def test_a_revoked_key_is_refused_wherever_it_shows() -> None:
    believes = trust()
    news = believes.take_revocation(revocation("b", B))
    assert (news.name, news.state, news.id) == ("b", "revoked", LISTED["b"])
    assert shown(believes, B) == "its key was revoked by the mesh key"
    assert "was revoked" in believes.refusal(LISTED["b"], "b")
    with pytest.raises(IdentityError, match="not signed"):
        believes.take_revocation(revocation("a", A, signer=B))
    with pytest.raises(IdentityError, match="not a revocation"):
        believes.take_revocation(lease("a", A))
    with pytest.raises(IdentityError, match="no mesh_key"):
        Trust(mesh="mesh", listed=LISTED).take_revocation(revocation("a", A))


@pytest.mark.parametrize("hours", [0, 1.5, 3, 23, 24 * 365])
def test_a_revocation_holds_at_a_node_whose_clock_is_behind(hours: float) -> None:
    believes = trust()
    proof = revocation("b", B, issued=int(NOW + 3600 * hours))
    assert believes.believed("a", [news("b", "revoked", id=LISTED["b"], proof=proof)])
    assert "was revoked" in believes.refusal(LISTED["b"], "b")


def test_a_successor_signed_by_the_old_key_takes_its_place() -> None:
    believes = trust()
    assert shown(believes, STRANGER, proof=succession("a", A, STRANGER)) == ""
    assert believes.name_of(keys.node_id(STRANGER)) == "a"
    assert believes.name_of(LISTED["a"]) == ""
    assert "no such id" in shown(believes, A)
    forged = succession("b", A, made_key(8))
    assert "not signed by the key" in shown(believes, made_key(8), proof=forged)


@pytest.mark.parametrize("later", [-60, 0, 60])
def test_the_holder_of_the_old_key_cannot_take_the_name_back(later: int) -> None:
    believes, thief = trust(), made_key(8)
    assert shown(believes, STRANGER, proof=succession("a", A, STRANGER)) == ""
    text = shown(believes, thief, proof=succession("a", A, thief, NOW + later))
    assert "another key" in text
    assert believes.name_of(keys.node_id(STRANGER)) == "a"
    assert shown(believes, STRANGER, proof=succession("a", A, STRANGER)) == ""


def test_a_successor_outlives_the_revocation_of_the_key_before_it() -> None:
    proof, thief = succession("a", A, STRANGER), made_key(8)
    for met in (True, False):  # before the revocation
        believes = trust()
        assert not met or shown(believes, STRANGER, proof=proof) == ""
        believes.take_revocation(revocation("a", A, issued=NOW + 60))
        late = succession("a", A, thief, NOW + 120)
        assert shown(believes, thief, proof=late)
        assert shown(believes, STRANGER, proof=proof) == ""
        assert believes.id_of("a") == keys.node_id(STRANGER)
        assert shown(believes, A) == "its key was revoked by the mesh key"


def test_a_key_names_another_successor_only_if_the_first_is_revoked() -> None:
    believes, second = trust(), made_key(8)
    assert shown(believes, STRANGER, proof=succession("a", A, STRANGER)) == ""
    believes.take_revocation(revocation("a", STRANGER))
    assert believes.id_of("a") == ""
    assert "was revoked" in shown(believes, STRANGER)
    assert shown(believes, second, proof=succession("a", A, second)) == ""
    assert believes.id_of("a") == keys.node_id(second)


@pytest.mark.parametrize(("later", "good"), [(-1, True), (0, True), (1, False)])
def test_a_revoked_key_names_no_successor_after_its_revocation(later: int, good: bool) -> None:
    believes = trust()
    believes.take_revocation(revocation("a", A))
    text = shown(believes, STRANGER, proof=succession("a", A, STRANGER, NOW + later))
    assert (text == "") == good
    assert good or text == "the key that it succeeds was revoked by the mesh key before"
    assert believes.id_of("a") == (keys.node_id(STRANGER) if good else "")
    assert ("belongs to nobody" in believes.refusal(keys.node_id(STRANGER), "a")) != good


def test_a_lease_holds_until_it_expires_and_no_longer() -> None:
    now = [float(NOW)]
    believes, id = trust({}, clock=lambda: now[0]), keys.node_id(STRANGER)
    proof = lease("s", STRANGER, expires=NOW + 60)
    assert shown(believes, STRANGER, proof=proof) == ""
    told = [Update("s", "alive", 1, "h:1")]
    for seconds, good in ((60, True), (61, False)):
        now[0] = NOW + seconds
        assert believes.leased("s") == good
        assert believes.name_of(id) == ("s" if good else "")
        assert believes.id_of("s") == (id if good else "")
        assert (believes.refusal(id, "s") == "") == good
        assert [one.id for one in believes.believed("b", told)] == ([id] if good else [])


def test_news_of_an_old_keys_revocation_leaves_its_successor_in() -> None:
    believes, line = trust(), revocation("a", A, issued=NOW + 60)
    assert shown(believes, STRANGER, proof=succession("a", A, STRANGER)) == ""
    assert believes.believed("b", [Update("a", "revoked", id=LISTED["a"], proof=line)]) == ()
    assert believes.refusal(LISTED["a"], "a") != ""
    assert believes.refusal(keys.node_id(STRANGER), "a") == ""


def test_revocations_and_successions_outlive_a_restart(tmp_path: Path) -> None:
    file, late = tmp_path / "believed", made_key(8)
    before = trust()
    before.keep_in(file)
    before.believed("b", [Update("z", "revoked", proof=revocation("z", late))])
    assert shown(before, STRANGER, proof=succession("a", A, STRANGER)) == ""
    after = trust(clock=lambda: NOW - 5 * DAY_S)  # a clock that is set later
    after.keep_in(file)
    assert after.is_revoked(keys.node_id(late))
    assert shown(after, late, at=NOW - 5 * DAY_S) == "its key was revoked by the mesh key"
    assert after.id_of("a") == keys.node_id(STRANGER)
    other = trust({"a": keys.node_id(STRANGER)})  # peers.yaml gives the new id by now
    other.keep_in(file)
    assert other.id_of("a") == keys.node_id(STRANGER)


@pytest.mark.parametrize("text", ["junk", "AAAA", armour(revocation("a", A, signer=B)), "Ä"])
def test_a_damaged_file_of_revocations_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "believed").write_text(text)
    with pytest.raises(StateError, match=r"believed is damaged \(.*restore it from a backup"):
        trust().keep_in(tmp_path / "believed")


def test_a_revocation_that_cannot_be_written_holds_until_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    believes = trust()
    believes.keep_in(tmp_path / "gone" / "believed")
    believes.take_revocation(revocation("b", B))
    assert believes.is_revoked(LISTED["b"])
    assert "forgotten at the next start" in caplog.text


def news(name: str, state: Any = "alive", **more: Any) -> Update:
    return Update(name, state, 1, **more)


def test_news_brings_nobody_in_without_a_lease() -> None:
    believes = trust()
    told = [news("z", address="h:1", id="ID"), news("a", address="evil:1", id="ID")]
    (kept,) = believes.believed("b", told)
    assert (kept.name, kept.address, kept.id) == ("a", "", LISTED["a"])
    proof = lease("z", STRANGER)
    (met,) = believes.believed(
        "b", [news("z", address="h:1", id=keys.node_id(STRANGER), proof=proof)]
    )
    assert (met.address, met.id, met.proof) == ("h:1", keys.node_id(STRANGER), proof)
    assert believes.believed("b", [news("z", address="h:2", id="other", proof=b"junk")])[0].id == (
        keys.node_id(STRANGER)
    )


def test_a_member_itself_says_where_it_moved() -> None:
    (kept,) = trust().believed("a", [news("a", address="h:9")])
    assert kept.address == "h:9"


def test_a_revocation_travels_as_news_and_only_with_its_proof() -> None:
    believes = trust()
    assert believes.believed("b", [news("a", "revoked")]) == ()
    told = believes.believed("b", [news("a", "revoked", proof=revocation("a", A))])
    assert [one.state for one in told] == ["revoked"]
    assert believes.id_of("a") == ""


@pytest.mark.parametrize("text", ["", "A", LISTED["a"].lower(), LISTED["a"][:-1], "Ä" * 52])
def test_what_is_no_id_is_named(text: str) -> None:
    with pytest.raises(IdentityError, match="52 letters and digits"):
        keys.read_group(text)
    assert keys.read_group(LISTED["a"])


def test_of_two_leases_of_one_second_all_nodes_keep_the_same() -> None:
    pair = [
        Update("s", "alive", 0, "", keys.node_id(key), lease("s", key)) for key in (B, STRANGER)
    ]
    kept = set()
    for order in (pair, pair[::-1]):
        made = trust({})
        for news in order:
            made.believed("s", [news])
        kept.add(made.id_of("s"))
    assert len(kept) == 1


def test_a_node_asks_itself_without_a_lease_and_not_with_a_revoked_key() -> None:
    believes, own = trust({}), keys.node_id(STRANGER)
    assert "its lease has ended" in believes.admits(own)
    assert believes.admits(own, own) == ""
    believes.take_revocation(revocation("s", STRANGER))
    assert "was revoked" in believes.admits(own, own)


@pytest.mark.parametrize("days", [-2, 91, 400, 4_000])
def test_the_operator_of_a_node_needs_neither_a_lease_nor_a_right_clock(days: int) -> None:
    believes = trust({}, clock=lambda: NOW + days * DAY_S)
    proof = lease("s", STRANGER)
    assert shown(believes, STRANGER, "s", proof=proof) != ""
    believes.own = LISTED_C
    assert shown(believes, STRANGER, "s", proof=proof, who="s") == ""
    assert shown(believes, B, "s", proof=proof) != ""
    assert believes.refusal(LISTED_C, "s") != "", "but the node is no member"
    believes.take_revocation(revocation("s", STRANGER))
    assert shown(believes, STRANGER, "s", proof=proof) != ""
