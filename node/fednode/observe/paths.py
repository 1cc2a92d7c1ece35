"""How a node reaches its peers, as status, page and metrics show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fednode.transports.tls import Tls
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
    def of(cls, tls: Tls | None) -> Paths:
        """Return the paths of a node's gate; of a node without keys, nothing."""
        if tls is None:
            return cls()
        links = tls.links
        if links is None:
            return cls(tls.exits.path)
        return cls(
            tls.exits.path,
            lambda: [
                status_pb2.Relay(address=link.address, state=link.state, why=link.why)
                for link in links.links
            ],
            lambda: links.trouble,
        )


def warnings(paths: Paths) -> list[str]:
    """Return what is wrong with this node's own way into the mesh."""
    trouble = paths.trouble()
    return [trouble] if trouble else []
