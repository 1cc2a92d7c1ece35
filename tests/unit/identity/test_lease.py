"""Statements and their proofs: what a signature covers, when a statement holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednode.errors import IdentityError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.lease import (
    DAY_S,
    PROOF_BYTES_MAX,
    SKEW_S,
    Statement,
    armour,
    nearly_over,
    peek,
    read,
    right,
    sign,
    sponsored,
    vouched,
)
from tests.unit.identity.people import (
    LISTED,
    MESH_KEY,
    NOW,
    A,
    B,
)


@given(st.binary(max_size=300))
def test_any_bytes_are_no_proof(data: bytes) -> None:
    with pytest.raises(IdentityError):
        leases.read(data, MESH_KEY.public_key())


KEY = MESH_KEY.public_key()
LEASE = Statement(
    kind="lease", mesh="mesh", name="a", id="ID", issued=NOW, expires=NOW + 90 * DAY_S
)


def test_what_was_signed_is_read_back_and_nothing_else() -> None:
    proof = sign(MESH_KEY, LEASE)
    assert read(proof, KEY) == LEASE == peek(proof)
    with pytest.raises(IdentityError, match="not signed by the key that it should be"):
        read(proof, A.public_key())
    with pytest.raises(IdentityError, match="not signed"):
        read(proof.replace(b'"a"', b'"b"'), KEY)


def test_a_signature_is_for_statements_alone() -> None:
    """The same key signs certificates; a signature over the bare statement is no proof."""
    body = sign(MESH_KEY, LEASE)[64:]
    with pytest.raises(IdentityError, match="not signed"):
        read(MESH_KEY.sign(body) + body, KEY)


def test_a_proof_is_bounded() -> None:
    long = sign(MESH_KEY, replace(LEASE, name="a" * PROOF_BYTES_MAX))
    with pytest.raises(IdentityError, match=f"at most {PROOF_BYTES_MAX} fit"):
        read(long, KEY)


@pytest.mark.parametrize(
    "changed",
    [{"kind": "grant"}, {"name": 7}, {"issued": 1.5}, {"issued": True}, {"expires": -1}],
)
def test_a_statement_that_this_version_does_not_know_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(IdentityError, match="does not know"):
        read(sign(MESH_KEY, replace(LEASE, **changed)), KEY)


@pytest.mark.parametrize(
    ("changed", "after_s", "text"),
    [
        ({}, 0, ""),
        ({}, -SKEW_S, ""),
        ({}, -SKEW_S - 1, "is from the future: check the clock"),
        ({}, 90 * DAY_S, ""),
        ({}, 90 * DAY_S + 3600, "its lease expired 1.0 hours ago: ask for a new one"),
        ({"expires": 0}, 900 * DAY_S, ""),
        ({"mesh": "other"}, 0, "its lease is for the mesh 'other'"),
    ],
)
def test_when_a_statement_holds(changed: dict[str, Any], after_s: int, text: str) -> None:
    fault = replace(LEASE, **changed).fault("mesh", NOW + after_s)
    assert text in fault
    assert bool(fault) == bool(text)


def test_a_lease_is_renewed_in_its_last_third() -> None:
    assert not nearly_over(LEASE, NOW + 60 * DAY_S)
    assert nearly_over(LEASE, NOW + 60 * DAY_S + 1)


ID_A, ID_B = LISTED["a"], LISTED["b"]
RIGHT = Statement(
    kind="sponsor", mesh="mesh", name="a", id=ID_A, issued=NOW, expires=NOW + 100 * DAY_S
)
GIVEN = replace(LEASE, name="b", id=ID_B)


def under(given: bytes, **changed: Any) -> bytes:
    """Return a lease that A signs under a right, whatever it says."""
    by, text = keys.written(A.public_key()), armour(given)
    return sign(A, replace(GIVEN, by=by, under=text, **changed))


def test_a_sponsor_signs_leases_that_hold_by_the_mesh_key_alone() -> None:
    lend = sponsored(A, sign(MESH_KEY, RIGHT), lambda: NOW)
    found = vouched(lend(GIVEN), KEY)
    assert (found.name, found.id, found.signer) == ("b", ID_B, ID_A)
    assert found.expires == GIVEN.expires
    assert vouched(sign(MESH_KEY, GIVEN), KEY).signer == ""


def test_the_longest_names_fit_into_a_sponsors_lease() -> None:
    mesh, name = "m" * 63, "n" * 63
    given = right(MESH_KEY, mesh, name, ID_A, NOW)
    proof = sponsored(A, given, lambda: NOW)(replace(GIVEN, mesh=mesh, name=name))
    assert vouched(proof, KEY).name == "n" * 63
    assert len(proof) <= PROOF_BYTES_MAX


def test_a_lease_of_a_sponsor_ends_with_its_right() -> None:
    short = sign(MESH_KEY, replace(RIGHT, expires=NOW + DAY_S))
    assert vouched(sponsored(A, short, lambda: NOW)(GIVEN), KEY).expires == NOW + DAY_S
    with pytest.raises(IdentityError, match="admits nobody any more: its sponsor expired"):
        sponsored(A, short, lambda: NOW + 2 * DAY_S)(GIVEN)
    with pytest.raises(IdentityError, match="admits nobody any more: its key is another"):
        sponsored(B, short, lambda: NOW)(GIVEN)


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (under(sign(MESH_KEY, RIGHT), issued=NOW - 1), "for a time that is not within its own"),
        (under(sign(MESH_KEY, RIGHT), expires=NOW + 101 * DAY_S), "not within its own"),
        (under(sign(MESH_KEY, RIGHT), expires=0), "not within its own"),
        (under(sign(MESH_KEY, RIGHT), mesh="other"), "no sponsor's of this mesh"),
        (under(sign(MESH_KEY, RIGHT), kind="sponsor"), "leases and revocations, and no sponsor"),
        (under(sign(MESH_KEY, RIGHT), kind="succession"), "revocations, and no succession"),
        (under(sign(MESH_KEY, RIGHT), kind="revocation", issued=NOW - 1), "not within its own"),
        (under(sign(MESH_KEY, replace(RIGHT, id=ID_B))), "no sponsor's of this mesh"),
        (under(sign(MESH_KEY, replace(RIGHT, kind="lease"))), "no sponsor's of this mesh"),
        (under(sign(A, RIGHT)), "not signed by the key that it should be"),
        (under(under(sign(MESH_KEY, RIGHT), kind="sponsor", id=ID_A)), "at most 1024 fit"),
        (sign(A, replace(GIVEN, by="x", under="y")), "'x' is no id or key"),
    ],
)
def test_a_sponsor_signs_nothing_else(proof: bytes, said: str) -> None:
    with pytest.raises(IdentityError, match=said):
        vouched(proof, KEY)


def test_a_lease_of_the_mesh_key_is_written_as_before_there_were_sponsors() -> None:
    assert b"under" not in sign(MESH_KEY, LEASE)


def test_dates_are_those_of_utc() -> None:
    assert [leases.day(moment) for moment in (86_399.0, 86_400.0)] == ["1970-01-01", "1970-01-02"]
