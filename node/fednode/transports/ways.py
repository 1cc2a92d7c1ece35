"""How a node reaches its peers, and is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from fednode.transports.links import Say
from fednode.transports.opening import Connect, RelayAt, open_directly
from fednode.transports.paths import IdOf, Reach
from fednode.transports.refusing import Learn
from fednode.transports.session import H2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How a node reaches its peers, and is reached.

    relays: at which it waits, and through which it dials. reach: the setting. id_of: returns the id
    of an address and a name. connect: opens connections to relays (if `proxied`, to everybody).
    say: records that no relay answers. proofs: returns revocations to pass on to relays. declined:
    returns why a relayed caller is not answered. known: tells whether relays can know this node,
    which has no lease at first. admits: tells whether relays may let strangers call this node, to
    ask it for a lease. offer: what to speak with those who are dialled.
    explain: returns what a refused caller is told, by its id and the reason; b"" for nothing.
    learn: takes the proof of a node that says that this node's key was revoked.
    """

    relays: tuple[RelayAt, ...] = ()
    reach: Reach = "auto"
    id_of: IdOf = lambda *_: ""
    connect: Connect = open_directly
    proxied: bool = False
    say: Say = lambda *_: None
    proofs: Callable[[], Iterable[bytes]] = lambda: ()
    declined: Callable[[str], str] = lambda _: ""
    known: Callable[[], bool] = lambda: True
    admits: Callable[[], bool] = lambda: False
    offer: bytes = H2
    explain: Callable[[str, str], bytes] = lambda *_: b""
    learn: Learn = lambda _: False


DIRECTLY: Final = Ways()
