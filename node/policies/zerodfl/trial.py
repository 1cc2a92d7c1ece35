"""The gate of a ZeroDFL node: received rows enter one by one, by the node's own validation loss.

ZeroDFL merges nothing, so there is nothing that a robust mean could do for it. With `admit_rise` a
row that was drawn for a position is tried there, and stays only when the validation loss does not
rise by more than that over what it was with the rows that stayed before it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from node.core.types import Array


@dataclass(slots=True)
class Trial:
    """Rows on trial: `rows` [m, width] with those that stayed, `loss` with them.

    left: position -> received row, still to be tried, lowest position first.
    """

    rows: Array
    loss: float
    left: dict[int, Array]
    rise: float
    stayed: int = 0
    refused: int = 0

    def candidate(self) -> Array | None:
        """Return the rows with the next one in its place; None once all were tried."""
        if not self.left:
            return None
        position = min(self.left)
        tried = np.array(self.rows, copy=True)
        tried[position] = self.left[position]
        return tried

    def judge(self, metrics: Mapping[str, float]) -> None:
        """Keep or drop the row on trial by the validation loss with it."""
        tried = self.candidate()
        assert tried is not None, "a row is on trial"
        loss = metrics.get("validation_loss", float("inf"))
        del self.left[min(self.left)]
        if loss <= self.loss + self.rise:  # never true of a loss that is no number
            self.rows, self.loss, self.stayed = tried, loss, self.stayed + 1
        else:
            self.refused += 1
