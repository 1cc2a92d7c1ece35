"""The gate of a ZeroDFL node: each received row is judged by the node's own validation loss.

ZeroDFL averages nothing, so a robust mean cannot help. With `admit_rise`, a received row is tried
in the position that it was drawn for. It stays only if the validation loss does not rise by more
than `admit_rise` over the loss with the rows that stayed before it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fednode.core.types import Array


@dataclass(frozen=True, slots=True)
class Trial:
    """Received rows on trial.

    Attributes:
        rows: [m, width], with the rows that stayed
        loss: the validation loss with them; None: it is measured before the first row is tried
        left: position -> received row, still to be tried, lowest position first
        rise: largest rise of the loss with which a row stays
    """

    rows: Array
    loss: float | None
    left: Mapping[int, Array]
    rise: float
    stayed: int = 0
    refused: int = 0

    def candidate(self) -> Array | None:
        """Return the rows to measure next; None if all received rows were tried."""
        if not self.left:
            return None
        if self.loss is None:
            return self.rows
        position = min(self.left)
        tried = np.array(self.rows, copy=True)
        tried[position] = self.left[position]
        return tried

    def judged(self, metrics: Mapping[str, float]) -> Trial:
        """Return the trial without the row that was measured, which stays or goes by its loss."""
        tried = self.candidate()
        assert tried is not None, "a row is on trial"
        loss = metrics.get("validation_loss", float("inf"))
        if self.loss is None:
            return replace(self, loss=loss)
        position = min(self.left)
        left = {place: row for place, row in self.left.items() if place != position}
        if loss <= self.loss + self.rise:  # false if the loss is NaN
            return replace(self, rows=tried, loss=loss, left=left, stayed=self.stayed + 1)
        return replace(self, left=left, refused=self.refused + 1)
