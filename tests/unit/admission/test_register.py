"""Tokens of links: for one name, one key and some days; whatever is asked at the same instant."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fednode.admission.register import Register, StolenLink
from fednode.errors import IdentityError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.lease import DAY_S
from tests.unit.identity.people import LISTED, MESH, MESH_KEY, NOW, made_key

ADDRESS = "127.0.0.1:7101"
A_ID, B_ID = LISTED["a"], LISTED["b"]


def book(folder: Path, now: float = NOW) -> Register:
    return Register(folder, MESH, lambda one: leases.sign(MESH_KEY, one), lambda: now)


def test_a_link_admits_one_key_to_one_name_and_the_same_key_may_ask_again(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.link_token("a", 7).hex()
    with pytest.raises(IdentityError, match="another name than 'b'"):
        made.enrol(A_ID, MESH, "b", ADDRESS, token)
    for _ in range(2):
        proof = made.enrol(A_ID, MESH, "a", ADDRESS, token)
        assert leases.read(proof, MESH_KEY.public_key()).id == A_ID
    with pytest.raises(StolenLink, match="was used before, by another key"):
        made.enrol(B_ID, MESH, "a", ADDRESS, token)


def test_of_fifty_keys_that_show_a_link_at_the_same_instant_one_is_admitted(tmp_path: Path) -> None:
    token = book(tmp_path).link_token("a", 7).hex()
    ids = [keys.node_id(made_key(number)) for number in range(50)]

    def ask(id: str) -> str:
        try:
            book(tmp_path).enrol(id, MESH, "a", ADDRESS, token)
        except IdentityError as fault:
            return type(fault).__name__
        return "admitted"

    with ThreadPoolExecutor(50) as threads:
        told = sorted(threads.map(ask, ids))
    assert told == ["StolenLink"] * 49 + ["admitted"]
    assert len(book(tmp_path).enrolled()) == 1


def test_a_link_ends_and_can_be_revoked_before_it_is_used(tmp_path: Path) -> None:
    token = book(tmp_path).link_token("a", 7).hex()
    assert book(tmp_path, NOW + 6 * DAY_S).enrol(A_ID, MESH, "a", ADDRESS, token, dry=True) == b""
    with pytest.raises(IdentityError, match="the link for 'a' ended on 2027-01-22: ask for a new"):
        book(tmp_path, NOW + 8 * DAY_S).enrol(A_ID, MESH, "a", ADDRESS, token)
    made = book(tmp_path)
    second = made.link_token("a", 7).hex()  # ends the one before it
    with pytest.raises(IdentityError, match="the token is wrong"):
        made.enrol(A_ID, MESH, "a", ADDRESS, token)
    assert (made.revoke_links("a"), made.revoke_links("a")) == (1, 0)
    with pytest.raises(IdentityError, match="the token is wrong"):
        made.enrol(A_ID, MESH, "a", ADDRESS, second)


def test_a_token_is_stored_as_a_digest_only(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.link_token("a", 7)
    made.enrol(A_ID, MESH, "a", ADDRESS, token.hex())
    for file in tmp_path.iterdir():
        assert token not in file.read_bytes()
        assert token.hex().encode() not in file.read_bytes()


def test_a_freed_name_is_not_taken_back_by_the_lost_key(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.link_token("a", 7).hex()
    made.enrol(A_ID, MESH, "a", ADDRESS, token)
    made.free("a")
    with pytest.raises(IdentityError, match="the token is wrong"):
        made.enrol(A_ID, MESH, "a", ADDRESS, token)


def test_a_name_that_the_mesh_gave_to_another_key_is_not_given_again(tmp_path: Path) -> None:
    made = book(tmp_path)
    made.id_of = {"a": B_ID}.get  # type: ignore[assignment]
    token = made.link_token("a", 7).hex()
    with pytest.raises(IdentityError, match="the name 'a' belongs to another key"):
        made.enrol(A_ID, MESH, "a", ADDRESS, token)
    assert made.enrol(B_ID, MESH, "a", ADDRESS, token)
