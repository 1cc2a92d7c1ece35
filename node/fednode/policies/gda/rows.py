"""The arrays of policy gda by name, and what is wrong with those of others. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from fednode.core.types import Array, Tensors

ROWS: Final = "rows"
"""Array [C, 1 + D]: for each class the number of its images and the sum of their unit features."""
MOMENT: Final = "moment"
"""Array [D (D + 1) / 2]: the upper triangle of the sum of x x^T over all images."""
NODE: Final = "node/"
"""Prefix, before a sender's name, of the rows that it sent last."""
SECOND: Final = "second/"
"""Prefix, before a sender's name, of the moment that it sent last."""
CHOICE: Final = "choice"
"""Array [3, 2]: for each of TABLES, the places of the ratio and the temperature that won."""
TABLES: Final = ("personal", "mesh", "unseen")
"""Tables of losses: of personal classifiers, of the mesh's, and of the mesh's on unseen classes."""
TABLE: Final = (7, 17)
"""Shape of a table: ratios and temperatures of node/fednode/learn/ratio.py."""
OWN: Final = "own"
"""Array [C, 1 + D]: the rows of a node's own images, of all its classes; it is never sent."""
OWN_MOMENT: Final = "own_moment"
"""Array [D, D]: the sum of x x^T over a node's own images; it is never sent."""
WORSE: Final = "worse"
"""Array [7, 17]: by how much a node is surely better alone, in nats; it is never sent."""
ALONE: Final = "alone"
"""Array [3]: the places of ratio and temperature of the node alone, and the accuracy (0..1) of its
own classifier on its images, each left out; it is never sent."""
PRIVATES: Final = (OWN, OWN_MOMENT, WORSE, ALONE)
NODES_MAX: Final[Mapping[str, int]] = {"means": 250, "sums": 125}
"""A state holds the sums of so many nodes, by policy.share: one array a node or two, and a message
has at most 256."""
STATE_BYTES: Final = 60 << 20
"""Most bytes of all nodes' sums: catch-up hands a state over in one message of at most 64 MiB."""
ENOUGH: Final = 4
"""`share: sums` needs so many images for each dimension of the features."""
LOSS_MAX: Final = 20.0
"""No table holds a greater loss, in nats."""
VOTE_MAX: Final = 2.0
"""By so many nats more than its table's least a loss counts at most."""
COUNT_MAX: Final = 1_000_000
"""Most images of a class that a node may claim."""
LONGER: Final = 1e-3
"""Room for the rounding of sums in float32, as a share of the number of images."""


def aligned(rows: Array, classes: Sequence[str], known: Sequence[str]) -> Array:
    """Return rows in the order of known classes; zeros for classes that have no row."""
    found = np.zeros((len(known), rows.shape[1]), np.float32)
    here = {name: at for at, name in enumerate(classes)}
    for at, name in enumerate(known):
        if name in here:
            found[at] = rows[here[name]]
    return found


def realigned(
    arrays: Mapping[str, Array], classes: Sequence[str], known: Sequence[str]
) -> dict[str, Array]:
    """Return arrays with the rows of all senders in the order of known classes."""
    return {
        name: aligned(one, classes, known) if name.startswith(NODE) else one
        for name, one in arrays.items()
    }


def present(rows: Array, classes: Sequence[str]) -> list[str]:
    """Return the classes that have images."""
    return [name for name, row in zip(classes, rows, strict=True) if row[0] > 0]


def held_most(share: str, classes: int, width: int) -> int:
    """Return how many nodes' sums a state holds; width: D + 1, of ROWS."""
    moment = (width - 1) * width // 2 if share == "sums" else 0
    return min(NODES_MAX[share], STATE_BYTES // (4 * (max(1, classes) * width + moment)))


def choice(tables: Sequence[Mapping[str, Array]]) -> list[tuple[int, int]]:
    """Return the place of the least loss for each of TABLES, over the tables of all nodes.

    A table of zeros is no vote. For unseen classes without a vote the mesh's choice counts.
    """
    votes = {name: [one[name] for one in tables if one[name].any()] for name in TABLES}
    return [best(votes[name] or votes["mesh"]) for name in TABLES]


def best(tables: Sequence[Array]) -> tuple[int, int]:
    """Return the place of the least sum over tables; without tables the first place.

    A loss counts at most VOTE_MAX more than the least of its table, so one table moves no mean loss
    of K tables by more than VOTE_MAX / K.
    """
    if not tables:
        return 0, 0
    wide = [one.astype(np.float64) for one in tables]
    total = sum(np.minimum(one - one.min(), VOTE_MAX) for one in wide)
    row, column = np.unravel_index(int(np.argmin(total)), TABLE)
    return int(row), int(column)


def rows_fault(rows: Array, classes: Sequence[str], width: int, least: float) -> str:
    """Return what is wrong with a sender's rows; "" if nothing is. least: smallest count."""
    if rows.shape != (len(classes), width):
        return f"rows are {list(rows.shape)} for {len(classes)} classes; here they have {width}"
    if list(classes) != sorted(set(classes)):
        return "the classes are not sorted, or one is named twice"
    counts = rows[:, 0].astype(np.float64)
    if (counts != np.round(counts)).any() or (counts < least).any():
        return f"the number of a class's images is not a whole number from {least:g}"
    if (counts > COUNT_MAX).any():
        return f"a class has more than {COUNT_MAX:,} images"
    lengths = np.linalg.norm(rows[:, 1:].astype(np.float64), axis=1)
    if (lengths > counts * (1.0 + LONGER)).any():
        return "a sum of unit features is longer than the number of its images"
    return ""


def moment_fault(moment: Array, counts: float, size: int) -> str:
    """Return what is wrong with a moment of `counts` unit features; "" if nothing is."""
    numbers = size * (size + 1) // 2
    if moment.shape != (numbers,):
        return f"the moment is {list(moment.shape)}; features of {size} have {numbers} numbers"
    diagonal = moment[np.cumsum([0, *range(size, 1, -1)])].astype(np.float64)
    if (diagonal < 0).any() or diagonal.sum() > counts * (1.0 + LONGER) + 1.0:
        return "the moment's trace is not between 0 and the number of images"
    return ""


def table_fault(tensors: Tensors) -> str:
    """Return what is wrong with a node's tables of losses; "" if nothing is."""
    if set(tensors) != set(TABLES) or tensors.classes:
        return f"the tables are {', '.join(tensors)}; there are {', '.join(TABLES)}"
    for name, one in tensors.items():
        if one.shape != TABLE:
            return f"the table {name} is {list(one.shape)}; here it is {list(TABLE)}"
        if (one < 0).any() or (one > LOSS_MAX).any():
            return f"the table {name} has a loss that is not between 0 and {LOSS_MAX:g}"
    return ""


def triangle(square: Array) -> Array:
    """Return the upper triangle [D (D + 1) / 2] of a symmetric array [D, D], row after row."""
    return np.asarray(square[np.triu_indices(len(square))], np.float32)


def squared(moment: Array) -> Array:
    """Return the symmetric array [D, D] of an upper triangle."""
    size = int((np.sqrt(8 * len(moment) + 1) - 1) / 2)
    found = np.zeros((size, size), moment.dtype)
    found[np.triu_indices(size)] = moment
    return np.asarray(found + np.triu(found, 1).T)
