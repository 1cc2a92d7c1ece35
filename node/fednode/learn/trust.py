"""Peers whose class means do not fit the names they come with, as one node's own images see it.

A node's own classifier judges each mean of a peer's class that the node has, too, as if it were an
image. A mean has less noise than an image, so an honest peer's means are told apart as well as the
node's own left-out images, or better, even of another kind of images. A peer that names its classes
wrongly, or sends invented means, fails most of them. The rule leaves out a peer of whose means
fewer are named right than half of the node's own images, if chance explains that in fewer than one
case in fifty. So where a node's own classifier knows little, it leaves out nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from fednode.learn.gaussian import Floats, Sums

LEAST: Final = 2
"""A peer is judged by so many common classes at least."""
SHARE: Final = 0.5
"""Means must be named right at least so often, as a share of the accuracy on own images."""
CHANCE: Final = 0.02
"""How probable so few right names of an honest peer must be at least, for it to count."""


def doubted(
    own: Sums,
    peers: Mapping[str, Sums],
    logits: Callable[[Floats], Floats],
    accuracy: float,
) -> tuple[str, ...]:
    """Return the names of the peers whose means do not fit their class names.

    own: of the node. logits: of its own classifier, over its own classes [n, C], for features
    [n, D]. accuracy: (0..1) of the own classifier on own images, each left out.
    """
    return tuple(name for name in sorted(peers) if _fails(own, peers[name], logits, accuracy))


def _fails(own: Sums, peer: Sums, logits: Callable[[Floats], Floats], accuracy: float) -> bool:
    common = [at for at, name in enumerate(peer.classes) if name in own.classes]
    if len(common) < LEAST:
        return False
    truth = np.array([own.classes.index(peer.classes[at]) for at in common])
    right = int((logits(peer.means[common]).argmax(axis=1) == truth).sum())
    few = right < SHARE * accuracy * len(common)
    return few and at_most(right, len(common), accuracy) < CHANCE


def at_most(right: int, count: int, share: float) -> float:
    """Return the probability that at most `right` of `count` are right, each with `share`."""
    return math.fsum(
        math.comb(count, k) * share**k * (1.0 - share) ** (count - k) for k in range(right + 1)
    )
