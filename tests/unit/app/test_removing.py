"""Who may remove whom: the founder any site, a sponsor the sites that it admitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fednode.app.admission import register_of
from fednode.app.founding import mesh_key_file
from fednode.app.plan import NodePlan
from fednode.app.removing import removable, remove
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.wire.gen import status_pb2
from tests.unit.app.founders import MESH, founded, identity_of, link_to
from tests.unit.identity.people import LISTED, NOW, made_key
from tests.unit.identity.test_lease import GIVEN, under

SPONSOR = LISTED["a"]


def peer(name: str, id: str, lease: bytes = b"") -> status_pb2.Peer:
    return status_pb2.Peer(name=name, id=id, lease=lease)


def admitted(plan: NodePlan, name: str, id: str) -> bytes:
    token = link_to(plan, name).token.hex()
    return register_of(plan.state, identity_of(plan)).enrol(id, MESH, name, "127.0.0.1:9", token)


def given(key: keys.PrivateKey, name: str, number: int) -> bytes:
    """Return a lease that the site s, a sponsor with the key A, gave a site. key: the mesh key."""
    right = leases.right(key, MESH, "s", SPONSOR, NOW)
    id = keys.node_id(made_key(number))
    return under(right, mesh=MESH, name=name, id=id, issued=NOW, expires=NOW + 9)


def test_the_leases_of_a_removed_sponsor_stay_or_end_as_the_founder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    admitted(plan, "s", SPONSOR)
    key = keys.load(mesh_key_file(MESH))
    held = {name: given(key, name, at) for at, name in enumerate(("x", "y"), 11)}
    peers = [peer("s", SPONSOR), *(peer(name, f"id-{name}", held[name]) for name in held)]
    removed = remove(removable(plan, "s", peers))
    assert (removed.stay, removed.out) == (("x", "y"), ())
    said = leases.peek(leases.disarm(removed.line))
    assert (said.id, set(said.staying)) == (SPONSOR, set(map(leases.digest, held.values())))
    removed = remove(removable(plan, "s", peers), everything=True)
    assert (removed.stay, removed.out) == ((), ("x", "y"))
    assert leases.peek(leases.disarm(removed.line)).staying == frozenset()


def test_a_sponsor_removes_its_own_newcomers_and_says_who_removes_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    key = keys.load(mesh_key_file(MESH))
    mesh_key_file(MESH).unlink()  # as at a sponsor
    admitted(plan, "b", LISTED["b"])
    by_mesh_key = leases.sign(key, replace(GIVEN, mesh=MESH, name="d", id="id-d"))
    strangers = [
        peer("c", "id-c", given(key, "c", 11)),
        peer("d", "id-d", by_mesh_key),
        peer("s", SPONSOR, b"what a later version writes"),
    ]
    with pytest.raises(ConfigError, match="'c' has its lease from 's', and a removes only"):
        removable(plan, "c", strangers)
    for name in "ds":
        with pytest.raises(ConfigError, match=f"'{name}' has its lease from the founder, or"):
            removable(plan, name, strangers)
    with pytest.raises(ConfigError, match="'c' has its lease from the sponsor "):
        removable(plan, "c", strangers[:1])
    with pytest.raises(ConfigError, match=r"a knows no site 'e'; it knows b, c, d, s."):
        removable(plan, "e", strangers)
    line = remove(removable(plan, "b", strangers)).line
    said = leases.vouched(leases.disarm(line), key.public_key())
    assert (said.kind, said.name, said.id) == ("revocation", "b", LISTED["b"])
    assert said.signer == identity_of(plan).id
