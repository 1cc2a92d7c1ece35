"""How a node reaches its peers, as status, page and metrics show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fednode.transports.grpc import GrpcTransport
from fednode.wire.gen import status_pb2


@dataclass(frozen=True, slots=True)
class Paths:
    """What is read about paths.

    path: returns the path to an address and a name in words, and why it is not direct. relays: the
    relays now. trouble: returns that no relay answers, in a sentence; "" if one does.
    """

    path: Callable[[str, str], tuple[str, str]] = lambda *_: ("", "")
    relays: Callable[[], Sequence[status_pb2.Relay]] = lambda: ()
    trouble: Callable[[], str] = lambda: ""

    @classmethod
    def of(cls, transport: GrpcTransport) -> Paths:
        """Return the paths of a node."""
        client = transport.relay
        if client is None:
            return cls(transport.path)
        return cls(
            transport.path,
            lambda: [
                status_pb2.Relay(address=relay.at.address, state=relay.state, why=relay.why)
                for relay in client.relays
            ],
            lambda: client.trouble,
        )


def relayed(reply: status_pb2.StatusReply) -> int:
    """Return how many peers a node reaches through relays."""
    return sum(peer.path.startswith("relay") for peer in reply.peers)


def sentences(reply: status_pb2.StatusReply) -> list[str]:
    """Return a sentence on each relay, and on why calls to peers go through relays."""
    found = [
        f"relay {relay.address}: {relay.state}" + (f" ({relay.why})" if relay.why else "")
        for relay in reply.relays
    ]
    reasons: dict[str, list[str]] = {}
    for peer in reply.peers:
        if peer.path_why:
            reasons.setdefault(peer.path_why, []).append(peer.name)
    return found + [f"relayed to {', '.join(names)}: {why}" for why, names in reasons.items()]


def warnings(paths: Paths) -> list[str]:
    """Return what is wrong with this node's own way into the mesh."""
    trouble = paths.trouble()
    return [trouble] if trouble else []
