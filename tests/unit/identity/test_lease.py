"""Statements and their proofs: what a signature covers, when a statement holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednode.errors import IdentityError
from fednode.identity import lease as leases
from fednode.identity.lease import (
    DAY_S,
    PROOF_BYTES_MAX,
    SKEW_S,
    Statement,
    nearly_over,
    peek,
    read,
    sign,
)
from tests.unit.identity.people import (
    MESH_KEY,
    NOW,
    A,
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
