"""A site joins a founder that takes no connections: both call a relay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from fednode.admission import link as links
from fednode.admission.link import Link
from fednode.app import admission as admission_module
from fednode.app import joining
from fednode.app.admission import register_of
from fednode.app.inviting import link_for
from fednode.app.joining import ask, peers_of, take_lease
from fednode.app.network import NodeNetwork, admitters_of
from fednode.app.plan import NodePlan
from fednode.errors import IdentityError, Refused, Unreachable
from fednode.identity import keys
from fednode.identity.certificate import judged
from fednode.identity.enrol import enrol, judge_token
from fednode.identity.identity import Identity
from fednode.settings.peers import RelayEntry
from fednode.transports import relay as relay_module
from fednode.transports.address import RELAY
from fednode.transports.grpc import GrpcTransport
from fednode.transports.opening import RelayAt, open_directly
from fednode.transports.ports import free_ports
from fednode.transports.session import ADMITTING, H2
from fednode.transports.tls import Tls
from fednode.transports.ways import Ways
from fednode.wire.gen import status_pb2, status_pb2_grpc
from fednode_bootstrap.relay_host import key_in, serve
from tests.unit.app.founders import MESH, admits, founded, identity_of, link_to
from tests.unit.transports.relays import until


@dataclass
class Place:
    """A founder that waits at a relay, and the relay."""

    plan: NodePlan
    network: NodeNetwork
    relay: RelayEntry
    said: list[str]

    def link(self, name: str) -> Link:
        """Return a link that `fednode invite` makes."""
        own = identity_of(self.plan)
        return links.read(link_for(name, self.plan, own, register_of(self.plan.state, own)))

    def told(self) -> bool:
        """Tell whether the relay was told that strangers may call."""
        tls = self.network.tls
        assert tls is not None
        assert tls.links is not None
        return tls.links.links[0].admits


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(relay_module, "PING_S", 0.05)
    monkeypatch.setattr("fednode.transports.relay.PING_S", 0.05)
    monkeypatch.setattr(joining, "RELAY_AGAIN_S", 0.1)
    address, said = f"127.0.0.1:{free_ports(1)[0]}", list[str]()
    relay = RelayEntry(address, keys.node_id(key_in(tmp_path / "relay")))
    plan, stop = founded(tmp_path, monkeypatch, relay), asyncio.Event()
    file = tmp_path / MESH / "peers.yaml"
    serving = asyncio.ensure_future(serve(file, tmp_path / "relay", address, stop, said.append))
    async with admits(plan) as network:
        assert network.tls is not None
        assert network.tls.links is not None
        waits = network.tls.links.links[0]
        await until(lambda: waits.up)
        yield Place(plan, network, relay, said)
    stop.set()
    await serving


async def test_a_site_asks_and_is_admitted_through_a_relay(place: Place, tmp_path: Path) -> None:
    link = place.link("b")
    assert link.addresses == ()
    assert [one.address for one in link.relays] == [place.relay.address]
    assert identity_of(place.plan).id.startswith(link.beginning)
    new = Identity(tmp_path / "b", MESH, "b")
    invitation = await ask(link, new, RELAY, open_directly)
    assert invitation.right.name == "a"
    await take_lease(invitation, new, RELAY, open_directly)
    assert new.lease is not None
    peers = peers_of(invitation, RELAY)
    assert [(peer.name, peer.address) for peer in peers.peers] == [("a", RELAY), ("b", RELAY)]
    assert peers.relays == (place.relay,)
    # A member renews its lease by the same way, as one that the relay knows.
    own = replace(place.plan, peers=peers, name="b")
    (asked,) = admitters_of(own, place.network.trust)  # type: ignore[arg-type]
    told = await enrol(new, asked, RELAY, "")
    assert [(one.name, one.address) for one in told.contacts] == [("a", RELAY)]
    assert place.network.admission is not None
    assert not place.network.admission.register.tokens.is_link_open()
    assert place.told(), "the site may ask again for a while, if the answer was lost"


async def test_nobody_is_let_through_before_an_invitation_and_after_its_end(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_module, "AGAIN_S", 0.0)
    new = Identity(tmp_path / "b", MESH, "b")
    link = place.link("b")
    await until(place.told)
    assert place.network.admission is not None
    place.network.admission.register.tokens.end_links("b")
    await until(lambda: not place.told())
    with pytest.raises(Unreachable) as fault:
        await ask(link, new, RELAY, open_directly)
    assert str(fault.value).startswith(f"The node behind {place.relay.address} does not answer: ")
    assert str(fault.value).endswith("while that node runs and a link of it is open.")
    assert len([line for line in place.said if "a stranger" in line or "is refused" in line]) == 1


async def test_a_relay_with_another_key_gets_no_token_and_a_false_link_opens_nothing(
    place: Place, tmp_path: Path
) -> None:
    link = place.link("b")
    await until(place.told)
    new = Identity(tmp_path / "b", MESH, "b")
    false = RelayEntry(place.relay.address, keys.node_id(key_in(tmp_path / "false")))
    with pytest.raises(Unreachable, match="shows the key"):
        await ask(replace(link, relays=(false,)), new, RELAY, open_directly)
    with pytest.raises(Refused, match="the token is wrong"):
        await ask(replace(link, token=bytes(12)), new, RELAY, open_directly)
    other = bytes(16)
    with pytest.raises(Unreachable, match=r"no node .* admits newcomers here"):
        await ask(replace(link, maker=other), new, RELAY, open_directly)


async def test_a_relay_that_leads_to_another_node_is_noticed_before_the_token_is_sent(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile relay answers whatever beginning of an id is asked for."""
    link = place.link("b")
    await until(place.told)
    find = relay_module.Relay._open_to_strangers
    real = link.beginning
    monkeypatch.setattr(
        relay_module.Relay, "_open_to_strangers", lambda self, beginning: find(self, real)
    )
    new = Identity(tmp_path / "b", MESH, "b")
    with pytest.raises(IdentityError, match="its key is not that of the node that made the link"):
        await ask(replace(link, maker=bytes(16)), new, RELAY, open_directly)


async def test_a_stranger_reaches_the_one_service_and_no_other(
    place: Place, tmp_path: Path
) -> None:
    """The stream of a stranger is a connection to the gate: what the port refuses, it refuses."""
    place.link("b")
    await until(place.told)
    new = Identity(tmp_path / "thief", MESH, "b")
    id = identity_of(place.plan).id

    def stranger(offer: bytes) -> GrpcTransport:
        ways = Ways(
            relays=(RelayAt(place.relay.address, place.relay.id),),
            id_of=lambda *_: id,
            offer=offer,
        )

        def judge(certificate: bytes, who: str) -> tuple[str, str]:
            return judged(certificate, lambda _: "")

        return GrpcTransport(Tls(new.credentials, judge, lambda *_: None, ways=ways))

    for offer in (ADMITTING, H2):
        transport = stranger(offer)
        with contextlib.ExitStack() as stack:
            stack.enter_context(pytest.raises(Unreachable))
            await transport.send(RELAY, b"frame", 10.0)
        channel = await transport.channel(RELAY)
        with pytest.raises(grpc.aio.AioRpcError) as fault:
            await status_pb2_grpc.NodeStub(channel).Status(status_pb2.StatusRequest(), timeout=180)
        expected = {ADMITTING: grpc.StatusCode.UNIMPLEMENTED, H2: grpc.StatusCode.UNAVAILABLE}
        assert fault.value.code() == expected[offer]
        await channel.close()
        await transport.close()


async def test_a_founder_with_a_port_that_nobody_reaches_is_joined_through_its_relay(
    place: Place, tmp_path: Path
) -> None:
    link = replace(place.link("b"), addresses=(f"127.0.0.1:{free_ports(1)[0]}",))
    await until(place.told)
    new = Identity(tmp_path / "b", MESH, "b")
    invitation = await ask(link, new, RELAY, open_directly)
    reply = await judge_token(new, invitation.admitter, RELAY, link.token.hex())
    assert list(reply.members) == ["a"]
    assert link_to(place.plan, "c").beginning == link.beginning
