"""The policy that a node runs, as its settings choose it: parsed once, then handed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fednode.core.policy import PolicyKind


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy with its checked settings; `fednode.settings.read.chosen_of` makes it.

    config: an instance of `kind.config_type`.
    written: the section `policy` as users write it: the name, and the keys that are set. State
    directories and exported files keep this text.
    """

    kind: PolicyKind
    config: Any
    written: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.kind.name

    @property
    def caution(self) -> str:
        """A warning to the operator about the policy's settings; "" if there is none."""
        return str(getattr(self.config, "caution", ""))

    @property
    def wire_dtype(self) -> Any:
        """The number format of the policy's messages; float32 if it has no such setting."""
        return getattr(self.config, "wire_dtype", "float32")
