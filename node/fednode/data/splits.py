"""Draw splits from class names and file lists: pure, seeded, equal on every node and platform.

The draw for a class depends neither on the other classes nor on the number of nodes that share the
data set. There are two ways to draw:

- Of a folder that a node uses, each *unit* has a place from 0 to 1, a hash of its name. A unit is
  an image's content, or a patient (groups.py). The place alone says whether its images test,
  validate or may train, so images that are added, removed or renamed move no other, and copies of
  an image stay together. The shares are right in expectation. If no unit of a class falls into a
  part, or all do, one unit is moved to keep both sides filled; only that unit may move later.
- Of a data set that does not change (the built-in images, experiments), a generator that is seeded
  by (seed, purpose, class) draws from the sorted file names, and the shares are exact. Only the
  standard library draws, because its generators are stable across versions.

Source of the protocol: CoOp's base-to-new halves (Zhou et al., CoCoOp, CVPR 2022).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from fednode.data.folder import sort_key

Files = tuple[Path, ...]

TEST_SEED: Final = 0
"""Seed of every test split, so that runs with different seeds are tested on the same images."""


def halves(classes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return base and new classes: the first half in the order given, rounded up, and the rest."""
    middle = (len(classes) + 1) // 2
    return tuple(classes[:middle]), tuple(classes[middle:])


def blocks(classes: int, count: int, size: int) -> tuple[range, ...]:
    """Return class ids for `count` nodes: `size` each, consecutive, the remainder to the last."""
    starts = [index * size for index in range(count)]
    return tuple(map(range, starts, [*starts[1:], classes]))


def place(unit: str, seed: int, purpose: str) -> float:
    """Return the place of a unit, from 0 to below 1."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{unit}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def held_out(
    classes: Iterable[Sequence[str]], share: float, place: Callable[[str], float]
) -> frozenset[str]:
    """Return the units that are kept from training: those whose place is below the share.

    classes: the unit of each image, for each class. A class of two units or more gives at least one
    if share is above 0, unless that leaves another class without a unit to train on.
    """
    if share <= 0.0:
        return frozenset()
    classes = [sorted(set(units), key=place) for units in classes]
    kept = {unit for units in classes for unit in units if place(unit) < share}
    kept |= {units[0] for units in classes if len(units) > 1 and not kept.intersection(units)}
    for units in classes:
        if kept.issuperset(units):
            kept.difference_update(units[-1:])
    return frozenset(kept)


def draw_test(files: Sequence[Path], name: str, share: float) -> Files:
    """Return a class's test images, drawn by the generator and sorted by file name.

    If share is above 0, both sides get at least one image, of two or more.
    """
    if share <= 0.0:
        return ()
    ordered = in_order(files)
    size = _within(_share(len(ordered), share), len(ordered))
    chosen = set(_generator(TEST_SEED, "test", name).sample(ordered, size))
    return tuple(path for path in ordered if path in chosen)


def in_order(files: Iterable[Path]) -> Files:
    """Return files sorted by name, and then by path."""
    return tuple(sorted(files, key=lambda path: (sort_key(path.name), path)))


def shuffle(files: Sequence[Path], name: str, seed: int) -> Files:
    """Return a class's files in the order in which the generator takes training images."""
    return tuple(_generator(seed, "train", name).sample(in_order(files), len(files)))


def draw_validation(shuffled: Sequence[Path], share: float) -> Files:
    """Return a class's validation images: the last of its files in shuffled order.

    Training images come from the front. So k shots are among k + 1 shots, and a validation split
    does not change the shots (while there are enough images). If share is above 0 and there are two
    images or more, it gets at least one.
    """
    if share <= 0.0 or len(shuffled) < 2:
        return ()
    return tuple(shuffled[len(shuffled) - _within(_share(len(shuffled), share), len(shuffled)) :])


def dirichlet(
    shuffled: Mapping[str, Sequence[Path]], count: int, alpha: float, seed: int
) -> tuple[dict[str, Files], ...]:
    """Divide every class's shuffled files among nodes by shares drawn from Dirichlet(alpha).

    Return each node's files by class, without empty classes. A node without any image gets one
    image from the node that holds most. There are no fewer images than nodes.
    """
    shares: list[dict[str, Files]] = [{} for _ in range(count)]
    for name in sorted(shuffled, key=sort_key):
        files = shuffled[name]
        cuts = _cuts(len(files), count, alpha, _generator(seed, "dirichlet", name))
        for node, (start, stop) in enumerate(pairwise(cuts)):
            if stop > start:
                shares[node][name] = tuple(files[start:stop])
    for node in range(count):
        if not shares[node]:
            _donate(shares, node)
    return tuple(shares)


def _cuts(images: int, count: int, alpha: float, generator: random.Random) -> list[int]:
    weights = [generator.gammavariate(alpha, 1.0) for _ in range(count)]
    total = sum(weights)
    if total <= 0.0:
        # If a very small alpha underflows, one node gets the whole class, which is the limit.
        weights[generator.randrange(count)] = total = 1.0
    cuts, reached = [0], 0.0
    for weight in weights[:-1]:
        reached += weight
        cuts.append(min(_share(images, reached / total), images))
    return [*cuts, images]


def _donate(shares: list[dict[str, Files]], to: int) -> None:
    held = [sum(map(len, share.values())) for share in shares]
    donor = shares[held.index(max(held))]
    name = max(sorted(donor, key=sort_key), key=lambda key: len(donor[key]))
    *kept, given = donor[name]
    shares[to][name] = (given,)
    if kept:
        donor[name] = tuple(kept)
    else:
        del donor[name]


def _within(size: int, count: int) -> int:
    """Return a size that leaves an image on each side."""
    return min(max(size, 1), count - 1)


def _share(count: int, share: float) -> int:
    return int(count * share + 0.5)


def _generator(seed: int, purpose: str, name: str) -> random.Random:
    # The standard library hashes a text seed with SHA-512, equally on all platforms.
    return random.Random(f"{seed}/{purpose}/{name}")
