"""Counts and sums of classes as arrays: what a node may send, and what it takes of others. Pure.

A statement of policy gda is one array ROWS [C, 1 + D] with its class names, sorted: for each class
the number of its images and the sum of their unit features.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np

from fednode.core.rounds.statements import BYTES_MAX, unpack
from fednode.core.types import Array, Tensors
from fednode.policies.gaussian import Floats, Sums

ROWS: Final = "rows"
SENT: Final = "sent"
"""Array [C, 1 + D]: what a node sent last of each class that it ever sent; it is never sent."""
SENT_IMAGES: Final = "sent_images"
"""Array [n, 4]: marks of the images in SENT, class after class (marks_of); it is never sent."""
PATIENT_BYTES: Final = 8
"""Bytes of a mark that are of the patient."""
WEIGHTS: Final = "weights"
"""Array [C, 1 + D] of an exported file: weights and bias of each known class, in place of sums."""
PERSONAL: Final = "personal_weights"
"""Array [C, 2 + D] beside it: 1 for the node's own classes, and their weights and bias if only own
classes are asked for."""
CLASSES_MAX: Final = 4096
"""A message names so many classes, and a node uses so many of all nodes."""
COUNT_MAX: Final = 1_000_000
"""Most images of a class that a node may claim."""
LONGER: Final = 1e-3
"""Room for the rounding of sums in float32, as a share of the number of images."""


def rows_of(sums: Sums) -> Floats:
    """Return counts and sums as one array [C, 1 + D]."""
    return np.column_stack([sums.counts, sums.sums])


def sums_of(statement: Tensors) -> Sums:
    """Return the counts and sums of a statement."""
    rows = statement[ROWS].astype(np.float64)
    return Sums(statement.classes, rows[:, 0], rows[:, 1:])


def statements_in(arrays: Mapping[str, Any], classes: Sequence[str]) -> dict[str, Tensors]:
    """Return the statements among arrays, which `pack` packed, by sender."""
    rows = {name: array for name, array in arrays.items() if name.startswith(f"{ROWS}/")}
    return unpack(Tensors(rows, classes))


def to_send(
    carry: Tensors,
    sums: Sums,
    names: Sequence[str],
    images: Sequence[bytes],
    least: int,
    patients: Sequence[bytes] = (),
) -> tuple[Tensors, Tensors]:
    """Return the statement to send, and the carry for the next one.

    The sums of a class are new if `least` of its images changed since they were sent: the
    difference of two messages would tell the feature of a single image. A class of fewer images is
    not named.

    carry: SENT and SENT_IMAGES. names, images: class and digest of each image. patients: of each
    image; `least` then counts patients, not images.
    """
    marks = marks_of(names, images, patients or images)
    rows = dict(zip(sums.classes, rows_of(sums), strict=True))
    here = {name: marks[[one == name for one in names]] for name in rows}
    sent, there = dict[str, Any](), dict[str, Array]()
    if SENT in carry:
        ends = np.cumsum(carry[SENT][:, 0]).astype(int)[:-1]
        sent = dict(zip(carry.classes, carry[SENT], strict=True))
        there = dict(zip(carry.classes, np.split(carry[SENT_IMAGES], ends), strict=True))
    told = []
    for name in sorted({*rows, *sent}):
        now, then = here.get(name, marks[:0]), there.get(name, marks[:0])
        if moved(now, then, bool(patients)) < least:
            told += [name] if name in sent else []
        elif name in rows and moved(now, marks[:0], bool(patients)) >= least:
            sent[name], there[name] = rows[name], here[name]
            told.append(name)
    known, width = sorted(sent), 1 + sums.sums.shape[1]
    kept = {
        SENT: np.array([sent[name] for name in known]).reshape(-1, width),
        SENT_IMAGES: np.concatenate([marks[:0], *(there[name] for name in known)]),
    }
    found = np.array([sent[name] for name in told]).reshape(-1, width)
    return Tensors({ROWS: found}, told), Tensors(kept, known)


def marks_of(names: Sequence[str], images: Sequence[bytes], patients: Sequence[bytes]) -> Array:
    """Return marks [n, 4] of images with their classes: 32 bits of a digest of the patient, and 32
    of the image, 16 in a number."""
    bits = b"".join(
        sha256(name.encode() + b"\0" + one).digest()[:4]
        for name, *pair in zip(names, patients, images, strict=True)
        for one in pair
    )
    return np.frombuffer(bits, "<u2").reshape(-1, 4).astype(np.float32)


def moved(marks: Array, before: Array, patients: bool) -> int:
    """Return how many images, or patients with such images, differ between two sets of marks."""
    now, then = (Counter(mark.tobytes() for mark in one) for one in (marks, before))
    changed = (now - then) + (then - now)
    return len({mark[:PATIENT_BYTES] for mark in changed}) if patients else changed.total()


def rows_fault(statement: Tensors, width: int) -> str:
    """Return what is wrong with a peer's statement; "" if nothing is. width: 1 + D."""
    if set(statement) != {ROWS}:
        return f"a statement carries {', '.join(statement) or 'nothing'}; it takes {ROWS}"
    rows, classes = statement[ROWS], statement.classes
    if rows.shape != (len(classes), width):
        return f"rows are {list(rows.shape)} for {len(classes)} classes; here they have {width}"
    if list(classes) != sorted(set(classes)):
        return "the classes are not sorted, or one is named twice"
    counts = rows[:, 0].astype(np.float64)
    if (counts != np.round(counts)).any() or (counts < 1).any():
        return "the number of a class's images is not a whole number from 1"
    if (counts > COUNT_MAX).any():
        return f"a class has more than {COUNT_MAX:,} images"
    lengths = np.linalg.norm(rows[:, 1:].astype(np.float64), axis=1)
    if (lengths > counts * (1.0 + LONGER)).any():
        return "a sum of unit features is longer than the number of its images"
    return ""


def fitting(statements: Mapping[str, Tensors], classes_max: int) -> dict[str, Tensors]:
    """Return the statements with the classes for which there is room.

    A sender has room for classes_max classes, or for as many as half of all senders have. Where all
    classes are too many, all senders have room for the same smaller number: the classes that most
    senders have first.
    """
    sizes = sorted(len(one.classes) for one in statements.values())
    most = max(classes_max, sizes[(len(sizes) - 1) // 2])
    senders = Counter(name for one in statements.values() for name in one.classes)
    order = {
        sender: sorted(one.classes, key=lambda name: (-senders[name], name))
        for sender, one in statements.items()
    }
    width = max(one[ROWS].shape[1] for one in statements.values())

    def fits(limit: int) -> bool:
        some = [names[:limit] for names in order.values()]
        size = 4 * width * sum(map(len, some))
        return len(set().union(*some)) <= CLASSES_MAX and size <= BYTES_MAX

    if not fits(most):
        most = bisect_left(range(1, most + 1), True, key=lambda limit: not fits(limit))
    counted = {}
    for sender, one in statements.items():
        stay = sorted(order[sender][:most])
        here = [name in set(stay) for name in one.classes]
        counted[sender] = one if all(here) else Tensors({ROWS: one[ROWS][here]}, stay)
    return counted


def room_note(
    statements: Mapping[str, Tensors], counted: Mapping[str, Tensors], classes_max: int
) -> str:
    """Return for which classes there is no room; "" if there is room for all."""
    left_out = [
        f"{len(one.classes) - len(counted[sender].classes):,} of the {len(one.classes):,} classes "
        f"of {sender}"
        for sender, one in sorted(statements.items())
        if len(one.classes) > len(counted[sender].classes)
    ]
    if not left_out:
        return ""
    return (
        f"{', '.join(left_out)} do not count: policy.classes_max has room for {classes_max} of a "
        f"node, and a node uses {CLASSES_MAX:,} of all"
    )
