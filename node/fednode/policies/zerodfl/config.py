"""ZeroDFL's settings: the paper's values, and the released code's where the two differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fednode.core.settings import STRICT, bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroDFLConfig:
    """ZeroDFL (IJCNN 2025): each node sends prompt rows to a few peers, without a server.

    docs/divergence.md compares these settings with the paper. With the default of admit_rise, any
    member can replace the rows of this node.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    recipients: int = 5
    """S of the paper: the number of peers that get a round's rows. More recipients spread prompts
    faster; each costs a message."""
    rows_shared: int | None = None
    """Number s of the context_length rows that are exchanged; the other rows stay private. null:
    all."""
    pool_age: int = 1
    """Number of merges for which a received row is kept. 1: a row is used in the next merge or
    never; more helps if messages are rare."""
    positions: Literal["shuffled", "kept"] = "shuffled"
    """shuffled: a received row may replace any row, as in the released code; the paper says nothing
    of positions. kept: row i replaces row i."""
    optimizer: Literal["keep", "reset"] = "keep"
    wire_dtype: Literal["float32", "float16"] = "float16"
    admit_rise: float | None = None
    """Largest accepted rise of the node's own validation loss by a received row; rows that raise
    it more are not used. Needs data.validation, and costs a measurement per row. null: every row
    is used."""

    @property
    def judged_by(self) -> str:
        """The setting that needs validation images; "" if none does."""
        return "" if self.admit_rise is None else "policy.admit_rise"

    @property
    def caution(self) -> str:
        """A warning to the operator about these settings; "" if there is none."""
        if self.admit_rise is not None:
            return ""
        return (
            "policy.admit_rise is null, so this node takes over rows (context vectors of the "
            "prompt) from any member without a test on its own images. A number, such as 0.05, "
            "turns the test on (it needs data.validation)."
        )

    def __post_init__(self) -> None:
        bounded("policy.recipients", self.recipients, 1)
        bounded("policy.pool_age", self.pool_age, 1)
        if self.admit_rise is not None:
            bounded("policy.admit_rise", self.admit_rise, 0)
        if self.rows_shared is not None:
            bounded("policy.rows_shared", self.rows_shared, 0)
