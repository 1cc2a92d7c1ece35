"""Settings of FedTPG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fednode.core.rounds.averaging import AveragingConfig
from fednode.core.types import Dtype


@dataclass(frozen=True, slots=True)
class FedTPGConfig(AveragingConfig):
    """FedTPG (Qiu et al. 2024): a network makes prompts from class names; it is averaged."""

    weights: Literal["samples", "equal"] = "equal"
    optimizer: Literal["keep", "reset"] = "keep"
    wire_dtype: Dtype = "float16"
    paper_number_bytes: ClassVar[int] = 2  # its paper counts float16
