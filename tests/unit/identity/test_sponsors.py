"""What sponsors sign: leases and revocations of their own newcomers, and nothing by its date."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fednode.core.types import Update
from fednode.errors import IdentityError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.lease import DAY_S, Statement, sponsored
from tests.unit.identity.people import (
    LISTED,
    MESH_KEY,
    NOW,
    STRANGER,
    A,
    B,
    lease,
    revocation,
    statement,
    trust,
)
from tests.unit.identity.test_trust import shown


def lent(name: str, key: Any, **changed: Any) -> bytes:
    """Return a lease that a signed as a sponsor."""
    right = leases.sign(MESH_KEY, statement("sponsor", "a", A, expires=NOW + 365 * DAY_S))
    return sponsored(A, right, lambda: NOW)(statement("lease", name, key, **changed))


def test_a_sponsors_lease_counts_until_the_sponsors_key_is_revoked() -> None:
    made = trust({})
    news = Update("s", "alive", 0, "", keys.node_id(STRANGER), lent("s", STRANGER))
    assert made.believed("s", [news])[0].id == keys.node_id(STRANGER)
    assert made.name_of(keys.node_id(STRANGER)) == "s"
    made.take_revocation(revocation("a", A))
    assert made.name_of(keys.node_id(STRANGER)) == ""
    assert made.believed("s", [news]) == ()
    assert made.believed("s", [replace(news, proof=lease("s", STRANGER))]) != ()


def withdrawn(name: str, key: Any) -> bytes:
    """Return the revocation of a key that a signed as a sponsor."""
    right = leases.sign(MESH_KEY, statement("sponsor", "a", A, expires=NOW + 365 * DAY_S))
    return sponsored(A, right, lambda: NOW)(statement("revocation", name, key, expires=0))


def test_of_two_keys_that_founder_and_sponsor_gave_one_name_all_nodes_keep_the_same() -> None:
    pair = [
        Update("s", "alive", 0, "", keys.node_id(B), lease("s", B)),
        Update("s", "alive", 0, "", keys.node_id(STRANGER), lent("s", STRANGER)),
    ]
    kept = set()
    for order in (pair, pair[::-1]):
        made = trust({})
        for news in order:
            made.believed("x", [news])
        kept.add((made.id_of("s"), made.name_of(keys.node_id(B))))
    assert len(kept) == 1


def test_a_sponsor_revokes_the_leases_that_it_gave_and_a_restart_forgets_nothing(
    tmp_path: Path,
) -> None:
    made, stranger = trust({}), keys.node_id(STRANGER)
    made.keep_in(tmp_path / "believed")
    made.believed("x", [Update("s", "alive", 0, "", stranger, lent("s", STRANGER))])
    made.believed("x", [Update("b", "alive", 0, "", keys.node_id(B), lease("b", B))])
    assert made.take_revocation(withdrawn("b", B)).id == keys.node_id(B)
    assert made.id_of("b") == keys.node_id(B), "the mesh key let it in"
    assert not made.is_revoked(keys.node_id(B))
    proof = withdrawn("s", STRANGER)
    told = made.believed("x", [Update("s", "revoked", 0, "", stranger, proof)])
    assert [(update.name, update.state, update.id) for update in told] == [
        ("s", "revoked", stranger)
    ]
    for again in (made, trust({})):
        again.keep_in(tmp_path / "believed")
        news = Update("s", "alive", 0, "", stranger, lent("s", STRANGER, issued=NOW - 5))
        assert again.believed("s", [news]) == ()
        assert again.is_revoked(stranger)
        assert proof in again.revocations()


def test_a_revoked_sponsor_dates_nothing_back() -> None:
    made, stays = trust({}), lent("b", B)
    ended = statement("revocation", "a", A, expires=0, stay=leases.digest(stays))
    made.take_revocation(leases.sign(MESH_KEY, ended))
    assert made.believed("b", [Update("b", "alive", 0, "", keys.node_id(B), stays)]) != ()
    late = lent("s", STRANGER)  # its date is before the revocation, and nobody can tell
    assert made.believed("s", [Update("s", "alive", 0, "", keys.node_id(STRANGER), late)]) == ()
    assert "the key of its sponsor" in shown(made, STRANGER, "s", late)
    assert made.id_of("s") == ""
    with pytest.raises(IdentityError, match="the key of the sponsor that signed the revocation"):
        made.take_revocation(withdrawn("b", B))
    assert made.id_of("b") == keys.node_id(B)


def test_a_revocation_with_all_leases_that_can_stay_is_no_longer_than_a_proof_may_be() -> None:
    word, digests = "n" * 63, [leases.digest(bytes([at])) for at in range(leases.STAY_MAX)]
    longest = Statement(
        kind="revocation", mesh=word, name=word, id=LISTED["a"], issued=NOW, stay="".join(digests)
    )
    assert len(leases.sign(MESH_KEY, longest)) <= leases.PROOF_BYTES_MAX
    assert longest.staying == set(digests)
    assert len(withdrawn(word, STRANGER)) <= leases.PROOF_BYTES_MAX
