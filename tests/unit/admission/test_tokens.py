"""Tokens of links: for one name, one key and some days; known by their digest only."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.admission.files import Files
from fednode.admission.tokens import ENDED_MAX, REPLACED, Tokens
from fednode.errors import IdentityError
from fednode.identity.lease import DAY_S
from tests.unit.admission.test_register import A_ID, ADDRESS, B_ID, book
from tests.unit.identity.people import MESH, NOW


def test_a_link_ends_and_can_be_revoked_before_it_is_used(tmp_path: Path) -> None:
    token = book(tmp_path).tokens.for_link("a", 7).hex()
    assert book(tmp_path, NOW + 6 * DAY_S).enrol(A_ID, MESH, "a", ADDRESS, token, dry=True) == b""
    with pytest.raises(IdentityError, match="the link for 'a' ended on 2027-01-22: ask for a new"):
        book(tmp_path, NOW + 8 * DAY_S).enrol(A_ID, MESH, "a", ADDRESS, token)
    made = book(tmp_path)
    second = made.tokens.for_link("a", 7).hex()  # ends the one before it
    with pytest.raises(IdentityError, match="the link for 'a' was replaced by a newer link: use"):
        made.enrol(A_ID, MESH, "a", ADDRESS, token)
    assert (made.tokens.end_links("a"), made.tokens.end_links("a")) == (1, 0)
    with pytest.raises(IdentityError, match="the link for 'a' was ended by its sender: ask for a"):
        made.enrol(A_ID, MESH, "a", ADDRESS, second)
    assert not made.tokens.is_link_open()


def test_a_token_is_stored_as_a_digest_only(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.tokens.for_link("a", 7)
    made.enrol(A_ID, MESH, "a", ADDRESS, token.hex())
    for file in tmp_path.iterdir():
        assert token not in file.read_bytes()
        assert token.hex().encode() not in file.read_bytes()


def test_links_that_a_lost_key_used_end_with_the_others_of_its_name(tmp_path: Path) -> None:
    tokens = Tokens(Files(tmp_path), lambda: NOW)
    used = tokens.for_link("a", 7).hex()
    tokens.spend(used, "a", A_ID, dry=False)
    assert tokens.require(used, "a", A_ID).taken == A_ID
    tokens.for_link("a", 7)
    assert tokens.require(used, "a", A_ID).taken == A_ID
    tokens.for_link("a", 7, again=True)
    for id in (A_ID, B_ID):
        with pytest.raises(IdentityError, match="the link for 'a' was replaced by a newer link"):
            tokens.require(used, "a", id)


def test_a_name_stays_free_if_a_second_link_replaces_the_one_that_freed_it(tmp_path: Path) -> None:
    tokens = Tokens(Files(tmp_path), lambda: NOW)
    tokens.for_link("a", 7, again=True)
    tokens.for_link("b", 7)
    tokens.for_link("a", 7)
    assert (tokens.is_given_again("a"), tokens.is_given_again("b")) == (True, False)
    tokens.end_links("a")
    assert not tokens.is_given_again("a")


def test_few_ended_tokens_are_kept(tmp_path: Path) -> None:
    tokens = Tokens(Files(tmp_path), lambda: NOW)
    other = tokens.for_link("b", 7).hex()
    made = [tokens.for_link("a", 7).hex() for _ in range(ENDED_MAX + 2)]
    told = [tokens.fitting(token, "a") for token in made]
    assert [one is None for one in told] == [True] + [False] * (ENDED_MAX + 1)
    assert [one.ended for one in told if one] == [REPLACED] * ENDED_MAX + [""]
    assert tokens.require(other, "b", A_ID)
