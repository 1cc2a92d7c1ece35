"""Certificates: whose key one is, and what is no certificate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednode.errors import IdentityError
from fednode.identity.certificate import SKEW, mint, read_certificate
from fednode.identity.lease import DAY_S
from tests.unit.identity.people import (
    LISTED,
    NOW,
    A,
    der,
    made_key,
)


def test_a_certificate_says_whose_key_it_is() -> None:
    found = read_certificate(der(mint(A, "a", b"proof", NOW, 10)))
    assert (found.id, found.name, found.lease) == (LISTED["a"], "a", b"proof")
    assert found.expires == NOW + 10 * DAY_S
    assert found.begins == NOW - SKEW.total_seconds()


def test_a_certificate_of_another_hand_is_not_believed() -> None:
    """Signed by another key than its own, as an authority's would be."""
    real = mint(A, "a", b"", NOW)
    forged = der(real)[:-64] + made_key(7).sign(real.tbs_certificate_bytes)
    with pytest.raises(IdentityError, match="not signed by its own key"):
        read_certificate(forged)


@given(st.binary(max_size=200))
def test_any_bytes_are_no_certificate(data: bytes) -> None:
    with pytest.raises(IdentityError):
        read_certificate(data)
