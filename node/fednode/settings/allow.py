"""The settings of which changes of the mesh's settings a site accepts without being asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fednode.core.settings import STRICT, bounded


@dataclass(frozen=True, slots=True)
class AllowSettings:
    """Changes of the mesh's settings that this node accepts by itself (docs/first-mesh.md)."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    policies: tuple[str, ...] = ()
    """A change to one of these policies, and of its settings, is accepted at once. Every other
    change of the policy waits for `fednode settings take`."""
    rounds: int = 0
    """A change of rounds.max to at most this number is accepted at once. 0: none is."""
    model: bool = False
    """true: a change of the model is accepted at once. The node loads the new model first, and may
    fetch it as at a start."""

    def __post_init__(self) -> None:
        bounded("allow.rounds", self.rounds, 0)
