"""The arrays of policy gda by name, and what is wrong with those of others. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple, Self

import numpy as np

from fednode.core.types import Array, Tensors

ROWS: Final = "rows"
"""Array [C, 1 + D]: for each class the number of its images and the sum of their unit features."""
MOMENT: Final = "moment"
"""Array [D (D + 1) / 2]: the upper triangle of the sum of x x^T over all images."""
NODE: Final = "node/"
"""Prefix, before a sender's name, of an array [C, 2 + D] of the rows that it sent last: each begins
with the place of its class among all classes of the state."""
LEFT: Final = "left"
"""Array [N]: for each sender by name, how many of its classes have no room in the state."""
SECOND: Final = "second/"
"""Prefix, before a sender's name, of the moment that it sent last."""
CHOICE: Final = "choice"
"""Array [3, 2]: for each of TABLES, the places of the ratio and the temperature that won."""
COMMON: Final = (ROWS, MOMENT, CHOICE)
"""The arrays of a state that are no single sender's."""
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
SENT: Final = "sent"
"""Array [C, 1 + D]: what this node sent last of each class that it ever sent."""
SENT_IMAGES: Final = "sent_images"
"""Array [n, 4]: marks of the images in SENT, class after class (marks_of); it is never sent."""
SENT_MOMENT: Final = "sent_moment"
"""The moment that this node sent last with `share: sums`."""
VOTED: Final = "voted/"
"""Prefix of the tables that this node sent last, and of `images`, from which they were computed."""
PRIVATES: Final = (OWN, OWN_MOMENT, WORSE, ALONE)
NODES_MAX: Final[Mapping[str, int]] = {"means": 250, "sums": 125}
"""A state holds the sums of so many nodes, by policy.share: one array a node or two, and a message
has at most 256."""
CLASSES_MAX: Final = 4096
"""A state names so many classes, as a message does (wire/tensors.py)."""
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


class Kept(NamedTuple):
    """The rows [C, 1 + D] that a state keeps of one sender's classes, sorted by name.

    left: how many classes of the sender have no room.
    """

    classes: tuple[str, ...]
    rows: Array
    moment: Array | None = None
    left: int = 0

    def only(self, stay: Collection[str]) -> Self:
        """Return this with some of the classes; the moment is of all classes or of none."""
        if len(stay) == len(self.classes):
            return self
        here = [name in stay for name in self.classes]
        names = tuple(name for name in self.classes if name in stay)
        left = self.left + len(self.classes) - len(names)
        return self._replace(classes=names, rows=self.rows[here], moment=None, left=left)


def kept_in(arrays: Mapping[str, Array], classes: Sequence[str]) -> dict[str, Kept]:
    """Return what a state keeps, by sender."""
    found = dict[str, Kept]()
    senders = [name.removeprefix(NODE) for name in sorted(arrays) if name.startswith(NODE)]
    left = arrays.get(LEFT, np.zeros(len(senders), np.float32))
    for sender, missing in zip(senders, left, strict=True):
        array = arrays[NODE + sender]
        names = tuple(classes[int(place)] for place in array[:, 0])
        found[sender] = Kept(names, array[:, 1:], arrays.get(SECOND + sender), int(missing))
    return found


def state_of(kept: Mapping[str, Kept], known: Sequence[str]) -> dict[str, Array]:
    """Return the arrays of a state that keeps these rows and names known classes."""
    places = {name: at for at, name in enumerate(known)}
    arrays: dict[str, Array] = {}
    for sender, one in kept.items():
        column = np.array([places[name] for name in one.classes], np.float32)
        arrays[NODE + sender] = np.column_stack([column, one.rows])
        if one.moment is not None:
            arrays[SECOND + sender] = one.moment
    if any(one.left for one in kept.values()):
        arrays[LEFT] = np.array([kept[sender].left for sender in sorted(kept)], np.float32)
    return arrays


def left_out(kept: Mapping[str, Kept]) -> dict[str, str]:
    """Return for each sender whose classes have not all room how many have none, in words."""
    return {
        name: f"{one.left:,} of the {one.left + len(one.classes):,} classes of {name}"
        for name, one in kept.items()
        if one.left
    }


def fitting(kept: Mapping[str, Kept], share: str, classes_max: int) -> dict[str, Kept]:
    """Return what a state has room for; it depends on the contributions alone.

    A sender has room for classes_max classes, or for as many as half of all senders have. Where all
    classes are too many for one message, all senders have room for the same smaller number, the
    classes that most senders have first; second moments go before any class does. The second moment
    of a sender with too many classes covers the others, too, so all of its classes go.
    """
    names = sorted(kept)[: NODES_MAX[share]]
    sizes = sorted(len(one.classes) for one in kept.values())  # 0 where all have too few images
    most = max(classes_max, sizes[(len(sizes) - 1) // 2] if sizes else 0)
    kept = {name: kept[name] for name in names}
    if share == "sums":
        large = {name for name in names if len(kept[name].classes) > most}
        kept = {name: one.only(() if name in large else one.classes) for name, one in kept.items()}
    senders = Counter(name for one in kept.values() for name in one.classes)
    order = {
        name: sorted(one.classes, key=lambda known: (-senders[known], known))
        for name, one in kept.items()
    }
    moments = sum(one.moment.nbytes for one in kept.values() if one.moment is not None)

    def fits(limit: int, taken: int) -> bool:
        stay = {name: order[name][:limit] for name in names}
        size = sum(4 * len(stay[name]) * (1 + kept[name].rows.shape[1]) for name in names)
        known = {one for some in stay.values() for one in some}
        return len(known) <= CLASSES_MAX and size + taken <= STATE_BYTES

    if not fits(most, moments):
        kept = {name: kept[name]._replace(moment=None) for name in names}
        most = bisect_left(range(1, most + 1), True, key=lambda limit: not fits(limit, 0))
    return {name: kept[name].only(set(order[name][:most])) for name in names}


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


def state_fault(arrays: Mapping[str, Array], classes: Sequence[str], width: int) -> str:
    """Return what is wrong with the arrays of all senders in a state; "" if nothing is."""
    senders = sorted(name for name in arrays if name.startswith(NODE))
    for name in senders:
        array = arrays[name]
        if array.ndim != 2 or array.shape[1] != 1 + width:
            return f"{name} is {list(array.shape)}; here its rows have {1 + width} numbers"
        places = array[:, 0].astype(np.float64)
        if (places != np.round(places)).any() or not (places < len(classes)).all():
            return f"{name} has a row of no class"
        if (places < 0).any() or (np.diff(places) <= 0).any():
            return f"the rows of {name} are not in the order of their classes"
        named = [classes[int(place)] for place in places]
        if wrong := rows_fault(array[:, 1:], named, width, 1.0):
            return f"{name}: {wrong}"
    left = arrays.get(LEFT, np.zeros(len(senders)))
    if left.shape != (len(senders),) or (left < 0).any() or (left != np.round(left)).any():
        return f"{LEFT} does not tell how many classes of each sender have no room"
    for name in (name for name in arrays if name.startswith(SECOND)):
        sums = arrays.get(NODE + name.removeprefix(SECOND))
        images = 0.0 if sums is None else float(sums[:, 1].sum(dtype=np.float64))
        if wrong := moment_fault(arrays[name], images, width - 1):
            return f"{name}: {wrong}"
    return ""


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


def marks_of(names: Sequence[str], images: Sequence[bytes]) -> Array:
    """Return marks [n, 4] of images with their classes: 64 bits of a digest, 16 in a number."""
    made = [sha256(name.encode() + b"\0" + one) for name, one in zip(names, images, strict=True)]
    bits = b"".join(one.digest()[:8] for one in made)
    return np.frombuffer(bits, "<u2").reshape(-1, 4).astype(np.float32)


def moved(marks: Array, before: Array) -> int:
    """Return how many images were added or removed between two sets of marks."""
    now, then = (Counter(mark.tobytes() for mark in one) for one in (marks, before))
    return (now - then).total() + (then - now).total()


def triangle(square: Array) -> Array:
    """Return the upper triangle [D (D + 1) / 2] of a symmetric array [D, D], row after row."""
    return np.asarray(square[np.triu_indices(len(square))], np.float32)


def squared(moment: Array) -> Array:
    """Return the symmetric array [D, D] of an upper triangle."""
    size = int((np.sqrt(8 * len(moment) + 1) - 1) / 2)
    found = np.zeros((size, size), moment.dtype)
    found[np.triu_indices(size)] = moment
    return np.asarray(found + np.triu(found, 1).T)
