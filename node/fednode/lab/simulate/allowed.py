"""What a scenario allows: its kinds of meshes, and the most of each fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from fednode.core.settings import STRICT, Barrier, GuardSettings, bounded

HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class MeshKind:
    """A policy with its settings, and the array shapes for the closed-form learner.

    modes: a seed draws one of them as rounds.mode. agrees: after the last round of `sync` without
    hostile nodes, all nodes hold equal bits. guard: as in node.yaml.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    policy: dict[str, Any]
    shapes: dict[str, tuple[int, ...]] | None = None
    modes: tuple[Barrier, ...] = ("sync",)
    domains: tuple[str, ...] = ()
    agrees: bool = False
    guard: GuardSettings = field(default_factory=GuardSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSettings:
    """The most that a seed may draw of each fault; 0 means never.

    loss, duplicates: shares (0..1) of frames. delay_s: of a frame. How many: crashes, wipes
    (crashes that lose the disk), cuts (some nodes from the rest), one_way and clogs (of a link),
    full_disks, pauses (by the operator), backups (that are restored). slow_disk_s: of a commit.
    skew_s: of clocks.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    loss: float = 0.2
    duplicates: float = 0.2
    delay_s: float = 0.3
    crashes: int = 3
    wipes: int = 1
    cuts: int = 2
    one_way: int = 3
    clogs: int = 3
    full_disks: int = 2
    pauses: int = 1
    backups: int = 0
    slow_disk_s: float = 0.5
    skew_s: float = HOUR_S

    def __post_init__(self) -> None:
        bounded("faults.loss", self.loss, 0, 0.9)
        bounded("faults.duplicates", self.duplicates, 0, 1)
        for key in ("delay_s", "slow_disk_s", "skew_s"):
            bounded(f"faults.{key}", getattr(self, key), 0)
