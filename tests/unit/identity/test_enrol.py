"""A node enrols at a real introducer, and is told why it is not enrolled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fednode.core.types import Update
from fednode.errors import IdentityError, Refused, Unreachable
from fednode.identity.enrol import enrol, introducer
from fednode.identity.identity import Identity
from fednode.identity.lease import disarm
from fednode_bootstrap.introducer import Roster
from fednode_bootstrap.serving import serve
from tests.unit.identity.people import LISTED, MESH

GUARD_S = 180.0
ADDRESS = "127.0.0.1:7101"
A_ID, B_ID = LISTED["a"], LISTED["b"]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Roster, str]]:
    made = Roster(tmp_path / "book", MESH)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(made, "127.0.0.1:0", stop, ready.set_result))
    async with asyncio.timeout(GUARD_S):
        address = await ready
    yield made, address
    stop.set()
    async with asyncio.timeout(GUARD_S):
        await task


async def test_a_node_enrols_keeps_its_lease_and_learns_of_others(
    served: tuple[Roster, str], tmp_path: Path
) -> None:
    made, at = served
    first = Identity(tmp_path / "n1", MESH, "n1")
    told = await enrol(first, introducer(made.mesh_key, at), "127.0.0.1:1", made.tokens.new())
    assert told.contacts == ()
    line = made.revoke("bad", B_ID)
    second = Identity(tmp_path / "n2", MESH, "n2")
    told = await enrol(second, introducer(made.mesh_key, at), "127.0.0.1:2", made.tokens.new())
    assert told.contacts == (Update("n1", "alive", 0, "127.0.0.1:1", first.id, first.proof),)
    assert told.revocations == (disarm(line),)
    assert not second.wants_lease()


async def test_why_a_node_is_not_enrolled_is_said(
    served: tuple[Roster, str], tmp_path: Path
) -> None:
    made, at = served
    one = Identity(tmp_path / "n1", MESH, "n1")
    with pytest.raises(Refused, match="refused: the token is wrong, spent"):
        await enrol(one, introducer(made.mesh_key, at), ADDRESS, "guess")
    other = Roster(tmp_path / "other", MESH).mesh_key
    with pytest.raises(IdentityError, match=r"cannot be believed: .* is not the mesh_key"):
        await enrol(one, introducer(other, at), ADDRESS, made.tokens.new())
    with pytest.raises(Unreachable, match="does not answer"):
        await enrol(one, introducer(made.mesh_key, "127.0.0.1:1"), ADDRESS, made.tokens.new())
    assert one.lease is None
