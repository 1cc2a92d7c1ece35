"""Strangers at a relay: they reach a node that admits, within bounds, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.identity.certificate import judged, shown_by
from fednode.transports import relay as relay_module
from fednode.transports import relay_frames as frames
from fednode.transports import strangers as module
from fednode.transports.links import Links
from fednode.transports.opening import NoRelay
from fednode.transports.relay import PING_S
from fednode.transports.session import Ends, showing
from fednode.transports.strangers import ALL_AT_ONCE, BEGINNING, CALLS_AT_ONCE, PLACES, Strangers
from fednode.wire.gen import relay_pb2 as pb
from tests.unit.transports.relays import (
    GUARD_S,
    HELD,
    NAMES,
    Raised,
    asked,
    emptied,
    links_of,
    raised,
    until,
)

FIRST = NAMES["n1"][:BEGINNING]


class Admitting:
    """A node that waits at a relay. open: whether it admits. calls: the streams that it took."""

    def __init__(self, relay: Raised, name: str = "n1") -> None:
        self.open, self.relay, self.id = True, relay, NAMES[name]
        self.links = links_of(name, relay.at, admits=lambda: self.open)
        self.calls: list[tuple[Ends, str]] = []

    async def answer(self, ends: Ends, relay: str, caller: str) -> None:
        """Keep a stream open."""
        self.calls.append((ends, caller))
        HELD.append(ends)
        await asyncio.Event().wait()

    async def says(self, now: bool) -> None:
        """Wait until the relay knows whether this node admits."""
        self.open = now
        self.relay.relay.look(asyncio.get_running_loop().time())
        await until(lambda: self.relay.relay._waiting[self.id].admits == now)


@pytest.fixture
def no_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no further call be allowed while a test makes its calls, however slow the machine."""
    monkeypatch.setattr(module, "CALLS_S", 1e-9)


@pytest.fixture
async def relay() -> AsyncIterator[Raised]:
    async with raised(watch=False) as one:
        yield one
        emptied()


@pytest.fixture
async def node(relay: Raised) -> AsyncIterator[Admitting]:
    one = Admitting(relay)
    one.links.wait(one.answer)
    await until(lambda: relay.relay.admits)
    yield one
    await one.links.close()


def stranger(relay: Raised) -> Links:
    """Return the links of a key that nobody knows."""
    context = showing(*shown_by(Ed25519PrivateKey.generate(), "stranger")())
    return Links([relay.at], lambda: context, lambda der: judged(der, lambda _: "")[0])


async def dialled(relay: Raised, to: str) -> tuple[Ends | None, str, str]:
    return await asked(stranger(relay), pb.FromNode(dial=pb.Dial(to=to)))


async def heard(ends: Ends) -> bytes:
    async with asyncio.timeout(GUARD_S):
        return await ends.reader.read(100)


async def test_a_stranger_reaches_a_node_that_admits_by_the_beginning_of_its_id(
    relay: Raised, node: Admitting
) -> None:
    ours, via = await stranger(relay).dial(FIRST)
    assert via == relay.at.address
    theirs, caller = node.calls[0]
    assert caller not in NAMES.values()
    assert theirs.source == "127.0.0.1", "the node counts newcomers by where they come from"
    ours.writer.write(b"may I come in?")
    assert await heard(theirs) == b"may I come in?"
    theirs.writer.write(b"yes")
    assert await heard(ours) == b"yes"
    relay.relay.look(asyncio.get_running_loop().time())
    theirs.writer.write(b"still there")
    assert await heard(ours) == b"still there", "the look for revoked keys leaves it alone"
    ours.writer.close()
    await until(lambda: not relay.relay.streams)
    assert not relay.relay._per_key


async def test_nobody_answers_while_no_invitation_is_open(relay: Raised, node: Admitting) -> None:
    await node.says(False)
    _, code, text = await dialled(relay, NAMES["n1"])
    assert (code, "does not admit this node's key" in text) == ("", True)
    assert relay.refused[-1][0] == "certificate", "the gate itself ends the connection, as ever"
    await node.says(True)
    assert (await dialled(relay, NAMES["n1"]))[1] == "ok"


async def test_a_node_without_an_invitation_is_as_absent_as_one_that_is_not_there(
    relay: Raised, node: Admitting
) -> None:
    other = links_of("n2", relay.at)
    other.wait(node.answer)
    await until(lambda: relay.relay.waiting == 2)
    said = [await dialled(relay, to) for to in (NAMES["n2"], NAMES["n3"], "", FIRST[:-1])]
    assert {code for _, code, _ in said} == {"absent"}
    assert {text.split("no node ")[1].split("...")[1] for _, _, text in said} == {
        " admits newcomers here"
    }
    assert not node.calls


@pytest.mark.parametrize(
    "first",
    [
        pb.FromNode(wait=pb.Wait()),
        pb.FromNode(take=pb.Take(ticket=bytes(16))),
        pb.FromNode(admits=pb.Admits(now=True)),
        pb.FromNode(revocation=pb.Revocation(proof=b"x")),
    ],
)
async def test_a_stranger_does_nothing_else(
    relay: Raised, node: Admitting, first: pb.FromNode
) -> None:
    _, code, text = await asked(stranger(relay), first)
    assert (code, text.endswith("this relay does not know the key")) == ("refused", True)
    assert relay.relay.waiting == 1


async def test_a_member_does_not_open_the_door_without_waiting(relay: Raised) -> None:
    links = links_of("n1", relay.at)
    with pytest.raises(NoRelay, match="cannot begin with admits"):
        await links._open(links.links[0], pb.FromNode(admits=pb.Admits(now=True)), GUARD_S)
    assert not relay.relay.admits


async def test_the_stream_of_a_stranger_has_few_bytes_and_a_short_life(
    relay: Raised, node: Admitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "BYTES_MAX", 1000)
    ours, _ = await stranger(relay).dial(FIRST)
    HELD.append(ours)
    theirs, _ = node.calls[0]
    ours.writer.write(bytes(1001))
    assert await heard(ours) == b""
    assert await heard(theirs) == b""

    monkeypatch.setattr(relay_module, "VISIT_S", 0.3)
    silent, _ = await stranger(relay).dial(FIRST)
    HELD.append(silent)
    assert await heard(silent) == b"", "who says nothing is gone soon"
    assert not relay.relay._strangers._room._held


async def test_strangers_take_no_place_of_members(
    relay: Raised, node: Admitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All places of strangers are taken: a member dials, and a further stranger takes theirs."""
    monkeypatch.setattr(module, "PLACES", 2)
    held = [(await dialled(relay, FIRST))[0] for _ in range(3)]
    assert all(held)
    assert await heard(held[0]) == b""  # type: ignore[arg-type]
    assert relay.relay.streams == 2
    member = links_of("n2", relay.at)
    ends, _ = await member.dial(NAMES["n1"])
    HELD.append(ends)
    ends.writer.write(b"hello")
    assert await heard(node.calls[-1][0]) == b"hello"


async def test_a_flood_of_strangers_is_turned_away_and_members_are_not(
    no_refill: None, relay: Raised, node: Admitting
) -> None:
    codes = [(await dialled(relay, FIRST))[1] for _ in range(int(CALLS_AT_ONCE) + 5)]
    assert codes == ["ok"] * int(CALLS_AT_ONCE) + ["full"] * 5
    assert len(node.calls) == CALLS_AT_ONCE
    ends, _ = await links_of("n2", relay.at).dial(NAMES["n1"])
    ends.writer.close()


async def test_a_flood_from_many_sources_has_a_bound_in_all() -> None:
    strangers, why = Strangers(), list[str]()
    for number in range(int(ALL_AT_ONCE) + 3):
        with strangers.visit(f"10.0.0.{number}", 0.0) as said:
            why.append(said)
    assert why == [""] * int(ALL_AT_ONCE) + ["too many strangers call this relay now"] * 3
    strangers.sweep(60.0)
    assert not len(strangers._each)
    with strangers.visit("10.0.0.1", 60.0) as said:
        assert said == ""


async def test_a_relay_that_stops_takes_no_strangers(relay: Raised, node: Admitting) -> None:
    await relay.relay.drain(0.0)
    assert (await dialled(relay, FIRST))[1] == "absent"


def test_the_bounds_fit_together() -> None:
    assert PLACES < 64, "a node holds 64 handshakes of one relay, and members want some"
    assert module.VISIT_S > 15 > PING_S
    assert len(frames.pack(pb.FromNode(admits=pb.Admits(now=True)))) < 10
