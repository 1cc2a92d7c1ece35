"""Who gets a lease: one key for each name and link, whatever is asked at the same instant."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fednode.admission import register as registers
from fednode.admission import tokens
from fednode.admission.calls import ASKED_MAX
from fednode.admission.register import Register
from fednode.admission.tokens import Knocked, StolenLink
from fednode.errors import IdentityError
from fednode.identity import keys
from fednode.identity import lease as leases
from tests.unit.identity.people import LISTED, MESH, MESH_KEY, NOW, made_key

ADDRESS = "127.0.0.1:7101"
A_ID, B_ID = LISTED["a"], LISTED["b"]


def book(folder: Path, now: float = NOW) -> Register:
    return Register(folder, MESH, lambda one: leases.sign(MESH_KEY, one), lambda: now)


def test_a_link_admits_one_key_to_one_name_and_the_same_key_may_ask_again(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.tokens.for_link("a", 7).hex()
    with pytest.raises(IdentityError, match="another name than 'b'"):
        made.enrol(A_ID, MESH, "b", ADDRESS, token)
    for _ in range(2):
        proof = made.enrol(A_ID, MESH, "a", ADDRESS, token)
        assert leases.read(proof, MESH_KEY.public_key()).id == A_ID
    with pytest.raises(StolenLink, match="was used before, by another key"):
        made.enrol(B_ID, MESH, "a", ADDRESS, token)


def test_of_fifty_keys_that_show_a_link_at_the_same_instant_one_is_admitted(tmp_path: Path) -> None:
    token = book(tmp_path).tokens.for_link("a", 7).hex()
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


def test_a_freed_name_is_not_taken_back_by_the_lost_key(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.tokens.for_link("a", 7).hex()
    made.enrol(A_ID, MESH, "a", ADDRESS, token)
    made.id_of = {"a": A_ID}.get  # type: ignore[assignment]
    newer = made.give_again("a", 7).hex()
    assert [one.name for one in made._files.tokens() if not one.ended] == ["a"]  # what is seen
    with pytest.raises(IdentityError, match="the link for 'a' was replaced by a newer link"):
        made.enrol(A_ID, MESH, "a", ADDRESS, token)
    with pytest.raises(IdentityError, match="no token was given"):
        made.enrol(A_ID, MESH, "a", ADDRESS, "")
    assert made.enrol(B_ID, MESH, "a", ADDRESS, newer)


def test_whoever_shows_an_ended_link_again_and_again_is_a_guesser(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.tokens.for_link("a", 7).hex()
    made.tokens.end_links("a")
    for _ in range(ASKED_MAX):
        with pytest.raises(IdentityError, match="was ended by its sender"):
            made.enrol(A_ID, MESH, "a", ADDRESS, token, "10.0.0.7")
    with pytest.raises(IdentityError, match="too many wrong tokens"):
        made.enrol(A_ID, MESH, "a", ADDRESS, token, "10.0.0.7")


def test_a_name_that_the_mesh_gave_to_another_key_is_not_given_again(tmp_path: Path) -> None:
    made = book(tmp_path)
    made.id_of = {"a": B_ID}.get  # type: ignore[assignment]
    token = made.tokens.for_link("a", 7).hex()
    with pytest.raises(IdentityError, match="the name 'a' belongs to another key"):
        made.enrol(A_ID, MESH, "a", ADDRESS, token)
    assert made.enrol(B_ID, MESH, "a", ADDRESS, token)


def test_a_key_that_the_mesh_revoked_gets_no_lease_here(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.tokens.for_link("a", 7).hex()
    made.is_revoked = A_ID.__eq__
    with pytest.raises(IdentityError, match="was revoked"):
        made.enrol(A_ID, MESH, "a", ADDRESS, token)


def test_a_register_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registers, "ENROLLED_MAX", 1)
    made = book(tmp_path)
    made.enrol(A_ID, MESH, "a", ADDRESS, made.tokens.for_link("a", 7).hex())
    with pytest.raises(IdentityError, match="1 nodes are enrolled, which is the limit"):
        made.enrol(B_ID, MESH, "b", ADDRESS, made.tokens.for_link("b", 7).hex())
    assert [node.name for node in made.enrolled()] == ["a"]


def test_few_knocks_are_kept_and_the_latest_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "REQUESTS_MAX", 2)
    made = book(tmp_path)
    for number, name in enumerate("xyz"):
        token = made.tokens.for_link(name, 7, approve=True).hex()
        with pytest.raises(Knocked):
            made.enrol(keys.node_id(made_key(number)), MESH, name, ADDRESS, token)
    assert [one.name for one in made.tokens.requests()] == ["y", "z"]


def test_the_files_are_whole_and_private(tmp_path: Path) -> None:
    made = book(tmp_path)
    made.enrol(A_ID, MESH, "a", ADDRESS, made.tokens.for_link("a", 7).hex())
    made.revoke("a", A_ID)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert {"tokens.json", "enrolled.json", "revoked.txt"} <= modes.keys()
    assert set(modes.values()) == {0o600}
