"""The policies that `fednode init` recommends, as the table of docs/methods.md says.

The table measures methods on images that chose none of their settings; a search (docs/results.md)
chose the settings, on other images. The rule: the highest accuracy on the images that a case is
about, which are a node's own images or, if nodes have other classes, the classes of the whole mesh.
Of methods that are less than one point behind it, take the one that loses least elsewhere. Leave
out methods that are certainly not better than training alone, and FedMaPLe, whose step takes seven
times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A policy. why: the figures that speak for it, in sentences; "" if the user chose it."""

    policy: str
    why: str = ""


_PRICE: Final = (
    " Members learn your class names, how many images each class has, and the mean of their "
    "features; `--policy fedpgp` tunes prompts instead."
)
CASES: Final[Mapping[str, Recommendation]] = {
    "same-classes": Recommendation(
        "gda",
        why="Recommended: gda. Against tuning prompts alone it gained +5.6 points (95 % interval "
        "+5.0 to +6.2) where nodes have the same classes and kind of images (Caltech-101, five "
        "seeds), and +0.7 (+0.1 to +1.3) against the same classifier without peers." + _PRICE,
    ),
    "other-classes": Recommendation(
        "gda",
        why="Recommended: gda. Against tuning prompts alone it gained +19.7 points (95 % interval "
        "+18.6 to +20.8) on the classes of all nodes together, and +2.9 (+2.1 to +3.8) on a node's "
        "own classes (Caltech-101, five seeds)." + _PRICE,
    ),
    "other-domains": Recommendation(
        "gda",
        why="Recommended: gda. Against tuning prompts alone it gained +1.8 points (95 % interval "
        "-0.8 to +4.3) on a node's own domain, and +2.9 (+0.5 to +5.4) on a domain that no node "
        "has (PACS, three seeds): the first gain may be chance." + _PRICE,
    ),
}
"""Recommended by what peers' images have in common with a node's own (`--others`)."""
RECOMMENDED: Final = CASES["same-classes"]
"""For a mesh of which this is not known. It is not the built-in policy, which a node runs whose
settings name none (fednode.settings.read.POLICY)."""
