"""How much a Gaussian classifier counts beside the hand-written prompt, chosen by left-out images.

    logits = (g + r z) / T        g: of node/fednode/learn/gaussian.py; z: the prompt's logits

Losses of images that are left out are tables over all ratios r and temperatures T, so that nodes
can add their tables. The least sum decides.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fednode.learn.gaussian import Floats

RATIOS: Final = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
HEATS: Final = tuple(float(heat) for heat in np.geomspace(0.25, 64.0, 17))


class Choice(NamedTuple):
    """ratio: of the hand-written prompt's logits. heat: the temperature."""

    ratio: float
    heat: float

    def logits(self, gauss: Floats, written: Floats) -> Floats:
        """Return the logits [n, C] of both parts together."""
        return (gauss + self.ratio * written) / self.heat


def log_loss(logits: Floats, labels: npt.NDArray[Any]) -> Floats:
    """Return the cross-entropy [n] of each image; labels [n] index the columns."""
    peak = logits.max(axis=1, keepdims=True)
    whole = peak[:, 0] + np.log(np.exp(logits - peak).sum(axis=1))
    return np.asarray(whole - logits[np.arange(len(labels)), labels])


def losses(gauss: Floats, written: Floats, labels: npt.NDArray[Any]) -> Floats:
    """Return the mean cross-entropy over images for each ratio and temperature, [7, 17]."""
    return np.array(
        [
            [log_loss(Choice(ratio, heat).logits(gauss, written), labels).mean() for heat in HEATS]
            for ratio in RATIOS
        ]
    )


def best(table: Floats) -> Choice:
    """Return the ratio and the temperature of the least loss; of equal losses, the first."""
    ratio, heat = np.unravel_index(int(np.argmin(table)), table.shape)
    return Choice(RATIOS[ratio], HEATS[heat])
