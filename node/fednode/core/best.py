"""The best prompts of a node by its own validation images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fednode.core.events import Adopt, Effect
from fednode.core.types import Snapshot, Tensors


class Best:
    """The best prompts so far."""

    def __init__(self, held: Snapshot) -> None:
        self._held = held

    @property
    def round(self) -> int:
        """Return the round of the best prompts; 0 if there are none."""
        return self._held.best_round

    @property
    def validation(self) -> float:
        """Return the validation accuracy of the best prompts."""
        return self._held.best_validation

    def judge(self, number: int, metrics: Mapping[str, float], tuned: Tensors) -> None:
        """Compare the prompts that a round tuned with the best."""
        accuracy = metrics.get("validation")
        if accuracy is not None and accuracy > self.validation:
            self._held = replace(
                self._held, best=tuned, best_round=number, best_validation=accuracy
            )

    def in_snapshots(self, effects: Sequence[Effect]) -> list[Effect]:
        """Return a policy's effects with the best prompts in the snapshots that it adopts."""
        return [
            replace(effect, snapshot=self._in(effect.snapshot))
            if isinstance(effect, Adopt)
            else effect
            for effect in effects
        ]

    def _in(self, snapshot: Snapshot) -> Snapshot:
        held = self._held
        return replace(
            snapshot,
            best=held.best,
            best_round=held.best_round,
            best_validation=held.best_validation,
        )
