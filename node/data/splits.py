"""Draw splits from class names and file lists: pure, seeded, equal on every node and platform.

Each draw has its own generator, seeded by (seed, purpose, class), so that what is drawn for one
class depends neither on the other classes nor on how many nodes share the data set. Only the
standard library draws, because its generators are stable across versions. Source of the protocol:
CoOp's base-to-new halves and FedTPG's client blocks, as METHODS section 1 states them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from node.data.folder import sort_key

Files = tuple[Path, ...]

TEST_SEED: Final = 0
"""Seed of every test split: runs with different seeds are tested on the same images."""


def halves(classes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return base and new classes: the first half by name, rounded up, and the rest."""
    ordered = sorted(classes, key=sort_key)
    middle = (len(ordered) + 1) // 2
    return tuple(ordered[:middle]), tuple(ordered[middle:])


def client_count(classes: int, classes_per_client: int) -> int:
    """Return how many clients share a data set's base classes: at least 1, halves to even.

    Half-way cases go to the even number (50 classes by 20 are 2 clients), as in FedTPG's code.
    """
    return max(1, round(classes / classes_per_client))


def client_blocks(classes: int, classes_per_client: int) -> tuple[range, ...]:
    """Return each client's class ids: consecutive blocks, the remainder to the last client.

    The last block may be larger or smaller than the others: 50 by 20 gives 20 and 30.
    """
    clients = client_count(classes, classes_per_client)
    return _blocks(classes, clients, classes_per_client)


def even_blocks(classes: int, count: int) -> tuple[range, ...]:
    """Return class ids for a given number of nodes: classes // count each, the rest to the last.

    Raise ValueError where there are more nodes than classes.
    """
    if not 1 <= count <= classes:
        raise ValueError(f"{classes} classes cannot be divided among {count} nodes")
    return _blocks(classes, count, classes // count)


def _blocks(classes: int, count: int, size: int) -> tuple[range, ...]:
    starts = [index * size for index in range(count)]
    return tuple(map(range, starts, [*starts[1:], classes]))


def draw_test(files: Sequence[Path], name: str, share: float) -> tuple[Files, Files]:
    """Return a class's test images and the rest, both sorted by file name.

    At least one image goes to each side, so that a share above 0 needs two images or more.
    """
    ordered = sorted(files, key=lambda path: sort_key(path.name))
    if share <= 0.0:
        return (), tuple(ordered)
    if len(ordered) < 2:
        raise ValueError(f"class '{name}' has {len(ordered)} images; a test split needs 2")
    size = min(max(_share(len(ordered), share), 1), len(ordered) - 1)
    chosen = set(_generator(TEST_SEED, "test", name).sample(range(len(ordered)), size))
    test = tuple(path for index, path in enumerate(ordered) if index in chosen)
    return test, tuple(path for index, path in enumerate(ordered) if index not in chosen)


def shuffle(files: Sequence[Path], name: str, seed: int) -> Files:
    """Return a class's files in the order in which training images are taken from them."""
    ordered = sorted(files, key=lambda path: sort_key(path.name))
    return tuple(_generator(seed, "train", name).sample(ordered, len(ordered)))


def draw_training(shuffled: Sequence[Path], shots: int, validation: float) -> tuple[Files, Files]:
    """Return a class's training and validation images from files in shuffled order.

    Training images come from the front and validation images from the back: k shots are among
    k + 1 shots, and the shots stay the same when a validation split is asked for (while there are
    enough images). Validation takes at least one image where there are two; shots 0 takes all.
    """
    kept = 0
    if validation > 0.0 and len(shuffled) > 1:
        kept = min(max(_share(len(shuffled), validation), 1), len(shuffled) - 1)
    pool = shuffled[: len(shuffled) - kept]
    train = pool[:shots] if shots else pool
    return tuple(train), tuple(shuffled[len(shuffled) - kept :])


def dirichlet(
    shuffled: Mapping[str, Sequence[Path]], count: int, alpha: float, seed: int
) -> tuple[dict[str, Files], ...]:
    """Divide every class's shuffled files among nodes by shares drawn from Dirichlet(alpha).

    Return each node's files by class, classes without any left out. A node that was dealt nothing
    gets one image from the node that holds most. Raise ValueError for fewer images than nodes.
    """
    total = sum(map(len, shuffled.values()))
    if not 1 <= count <= total:
        raise ValueError(f"{total} training images cannot be divided among {count} nodes")
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
        # A very small alpha underflows: in the limit one node gets the whole class.
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


def _share(count: int, share: float) -> int:
    return int(count * share + 0.5)


def _generator(seed: int, purpose: str, name: str) -> random.Random:
    # A text seed is hashed with SHA-512 by the standard library, equally on all platforms.
    return random.Random(f"{seed}/{purpose}/{name}")
