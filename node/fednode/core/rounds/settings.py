"""Settings that policies have in common, declared and explained once; a policy may set defaults.

ZeroDFL, which has no mesh-wide rounds, declares its own `wire_dtype` and `optimizer`; the texts
below explain them, too (tools/settings).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from fednode.core.settings import STRICT, MergeSettings, bounded
from fednode.core.types import Dtype


@dataclass(frozen=True, slots=True)
class MeshWideSettings:
    """Settings of every policy of mesh-wide rounds."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    participants: int = 0
    """Number H of nodes that tune and contribute in a round. All nodes draw the same H nodes by
    the seed, the round and the members' names, without a message. The other nodes merge what the
    drawn nodes send. 0: all nodes."""
    wire_dtype: Dtype = "float32"
    """Number format of prompts in messages. float16 halves the bytes of float32. int8 (policies
    that average prompts as a whole) sends changes with error feedback, in a quarter of the
    bytes."""
    merge: MergeSettings = field(default_factory=MergeSettings)

    def __post_init__(self) -> None:
        bounded("policy.participants", self.participants, 0)


@dataclass(frozen=True, slots=True)
class MomentSettings(MeshWideSettings):
    """Settings of policies whose merge replaces prompts that have moments of an optimizer."""

    optimizer: Literal["keep", "reset"] = "reset"
    """When other nodes' prompts replace the node's, keep the optimizer's momentum or moments of
    these prompts, or reset them. DiPrompT's Q is not replaced, so its moments are always kept."""
