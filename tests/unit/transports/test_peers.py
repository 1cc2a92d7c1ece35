"""A peer that moves: it costs few sockets, and few addresses that it names are dialled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fednode.errors import Unreachable
from fednode.transports import peers as module
from fednode.transports.grpc import GrpcTransport
from fednode.transports.peers import MINUTE_S, MOVES_MAX, PER_PEER, DialLimiter
from tests.meshes import Mesh

GUARD_S = 180.0


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def move(transport: GrpcTransport, first: int, last: int) -> None:
    """Open channels to some addresses of b."""
    for number in range(first, last):
        await (await transport.channel(f"127.0.0.{number}:1", "b")).close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors on Linux")
async def test_a_member_that_moves_on_and_on_costs_few_descriptors(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOVES_MAX", 1000)
    transport = mesh.transport("a")
    await move(transport, 2, 5)
    before = descriptors()
    for number in range(10, 14):
        with pytest.raises(Unreachable, match="nobody answers"):
            await transport.send(f"127.0.0.{number}:1", b"x", GUARD_S, "b")
    await move(transport, 20, 60)
    assert descriptors() - before < 10
    assert len(transport._peers) <= PER_PEER


@pytest.mark.parametrize("keyed", [True, False])
async def test_few_new_addresses_of_a_peer_are_dialled_in_a_minute(mesh: Mesh, keyed: bool) -> None:
    transport = mesh.transport("a") if keyed else GrpcTransport()
    await move(transport, 2, 2 + MOVES_MAX)
    for _ in range(2):
        with pytest.raises(Unreachable, match="'b' named more than 6 new addresses in a minute"):
            await transport.send("127.0.0.99:1", b"x", GUARD_S, "b")
    await transport.close()


async def test_a_peer_that_comes_back_to_its_place_is_reached(mesh: Mesh) -> None:
    async def who(frame: bytes, caller: str) -> bytes:
        return b"here"

    to, transport = await mesh.transport("b").listen("127.0.0.1:0", who), mesh.transport("a")
    assert await transport.send(to, b"x", GUARD_S, "b") == b"here"
    await move(transport, 2, 5)
    assert await transport.send(to, b"x", GUARD_S, "b") == b"here"


def test_a_further_move_waits_for_its_share_of_a_minute_and_each_peer_has_its_own() -> None:
    places, share_s = DialLimiter(), MINUTE_S / MOVES_MAX
    for number in range(MOVES_MAX):
        places.use((f"b:{number}", "b"), 0.0)
    with pytest.raises(Unreachable):
        places.use(("b:9", "b"), share_s - 1)
    assert places.use((f"b:{MOVES_MAX - 1}", "b"), share_s - 1) == []
    places.use(("c:1", "c"), share_s - 1)
    places.use(("b:9", "b"), share_s)
    with pytest.raises(Unreachable):
        places.use(("b:10", "b"), 2 * share_s - 1)


def test_callers_that_name_no_peer_share_the_places_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACES_MAX", 10)
    places = DialLimiter()
    gone = [place for number in range(12) for place in places.use((f"n:{number}", ""), 0.0)]
    assert gone == [("n:0", ""), ("n:1", "")]
