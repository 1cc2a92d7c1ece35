"""Settings of how a node reaches its peers, and helps others to reach theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fednode.core.settings import STRICT, bounded

Reach = Literal["auto", "direct", "relay"]


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """A relay on this node's own port."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    serve: bool = False
    """true: this node is a relay, too, on its own port; list its address and id under `relays` in
    peers.yaml. Only for a node that others can dial."""
    mbit: float = 0.0
    """Megabits a second that each key may send through the relay of this node; 0: no limit."""

    def __post_init__(self) -> None:
        bounded("relay.mbit", self.mbit, 0)
