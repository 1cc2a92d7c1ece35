"""Tokens of links: for one name, one key and some days; known by their digest only."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.admission.files import Files
from fednode.admission.tokens import Tokens
from fednode.errors import IdentityError
from fednode.identity.lease import DAY_S
from tests.unit.admission.test_register import A_ID, ADDRESS, book
from tests.unit.identity.people import MESH, NOW


def test_a_link_ends_and_can_be_revoked_before_it_is_used(tmp_path: Path) -> None:
    token = book(tmp_path).tokens.for_link("a", 7).hex()
    assert book(tmp_path, NOW + 6 * DAY_S).enrol(A_ID, MESH, "a", ADDRESS, token, dry=True) == b""
    with pytest.raises(IdentityError, match="the link for 'a' ended on 2027-01-22: ask for a new"):
        book(tmp_path, NOW + 8 * DAY_S).enrol(A_ID, MESH, "a", ADDRESS, token)
    made = book(tmp_path)
    second = made.tokens.for_link("a", 7).hex()  # ends the one before it
    with pytest.raises(IdentityError, match="the token is wrong"):
        made.enrol(A_ID, MESH, "a", ADDRESS, token)
    assert (made.tokens.end_links("a"), made.tokens.end_links("a")) == (1, 0)
    with pytest.raises(IdentityError, match="the token is wrong"):
        made.enrol(A_ID, MESH, "a", ADDRESS, second)


def test_a_token_is_stored_as_a_digest_only(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.tokens.for_link("a", 7)
    made.enrol(A_ID, MESH, "a", ADDRESS, token.hex())
    for file in tmp_path.iterdir():
        assert token not in file.read_bytes()
        assert token.hex().encode() not in file.read_bytes()


def test_the_keys_that_used_the_links_for_a_freed_name_are_forgotten(tmp_path: Path) -> None:
    tokens = Tokens(Files(tmp_path), lambda: NOW)
    token = tokens.for_link("a", 7).hex()
    tokens.spend(token, "a", A_ID, dry=False)
    assert tokens.require(token, "a", A_ID).taken == A_ID
    tokens.end_used("a")
    assert tokens.fitting(token, "a") is None
