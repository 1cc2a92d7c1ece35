"""Classes of peers whose means do not fit the names they come with, as one node sees them.

A node's own classifier names each mean of a peer's class that the node has, too, as if the mean
were an image. A mean has less noise than an image, so an honest peer's means are named right as
often as the node's own left-out images, or nearly so, even if its images are of another kind.

A peer is doubted if it has fewer right names than half of what the node's own images have, and
chance explains so few in fewer than one case in fifty. Then the classes that are named wrong are
left out. Images of another kind are named wrong, too, but less surely. So of a peer with more right
names only the means are left out that lie three quarters of the way to another class's mean or
further, and only if chance explains as many or, for two that look like each other as swapped labels
do, the pair. All other classes of the peer stay in use. Where a node's classifier knows little, the
node leaves out nothing.

For a class that the node lacks and two peers or more have, a mean of its peers stands for the class
(`_references`), and the same classifier names the means of all peers, also those of its own
classes, among these and its own. If three peers or more have the class, its reference is the median
of their means in each coordinate. If two have it, it is the mean of the peer that is not doubted;
if that says nothing, the mean that the hand-written prompt finds the likelier image of the class. A
mean that is named wrong is left out. A class that one peer alone has is neither judged nor a
reference: who copies means of others under names of its own would have the others left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Final

import numpy as np

from fednode.policies.gaussian import Floats, Sums, log_loss, pool

SHARE: Final = 0.5
"""Means must be named right at least so often, as a share of the accuracy on own images."""
CHANCE: Final = 0.02
"""How probable so few right names of an honest peer must be at least, for it to count."""
PAIR: Final = 0.05
"""How probable two honest classes that look like each other must be at least, for them to count."""
TIMES: Final = 10.0
"""A peer's count of a class weighs at most so many times the median of the class's counts."""

Names = dict[str, str]
"""For each class of a peer, the class whose images its mean looks like."""
Fit = Callable[[Sums], Callable[[Floats], Floats]]
"""Return the logits [n, C] for features [n, D] of the classifier that sums give."""


def mislabelled(
    own: Sums,
    peers: Mapping[str, Sums],
    fit: Fit,
    prompt: Callable[[Floats, Sequence[str]], Floats],
    accuracy: float,
) -> dict[str, Names]:
    """Return the classes to leave out of each doubted peer, with the classes they look like.

    fit: classifiers with the scatter of the node's own images. prompt: logits of the hand-written
    prompt for class names. accuracy: (0..1) of the own classifier on own images, each left out.
    """
    logits, doubts, here = fit(own), dict[str, Names](), set(own.classes)
    scores = logits(own.means)
    for name, peer in peers.items():
        names = _named(peer, [at for at in peer.classes if at in here], own, logits)
        doubts[name] = _doubts(names, _sure(peer, names, own, logits, scores), accuracy)
    references, givers = _references(own, peers, doubts, prompt)
    if references.classes:
        whole = pool([own, references])
        logits = fit(whole)
        scores = logits(whole.means)
        for name, peer in peers.items():
            names = _named(peer, [at for at in peer.classes if at in here], whole, logits)
            doubts[name] |= _doubts(names, _sure(peer, names, whole, logits, scores), accuracy)
            judged = [
                at for at in peer.classes if at in references.classes and givers.get(at) != name
            ]
            doubts[name] |= _misses(_named(peer, judged, whole, logits))
    return {name: wrong for name in sorted(peers) if (wrong := doubts[name])}


def _named(
    peer: Sums, judged: Sequence[str], known: Sums, logits: Callable[[Floats], Floats]
) -> Names:
    if not judged:
        return {}
    places = logits(peer.means[np.isin(peer.classes, judged)]).argmax(axis=1)
    return {name: known.classes[at] for name, at in zip(judged, places, strict=True)}


def _references(
    own: Sums,
    peers: Mapping[str, Sums],
    doubts: Mapping[str, Names],
    prompt: Callable[[Floats, Sequence[str]], Floats],
) -> tuple[Sums, dict[str, str]]:
    """Return sums for the common classes that the node lacks, and whose mean each is, if one's.

    doubts: by the classes that the node has.
    """
    sent: dict[str, dict[str, Floats]] = {}
    for name, peer in peers.items():
        for at, mean in zip(peer.classes, peer.means, strict=True):
            sent.setdefault(at, {})[name] = mean
    common = {at for at, means in sent.items() if len(means) > 1}
    lacking, givers = tuple(sorted(common - set(own.classes))), dict[str, str]()
    every, means = tuple(sorted({*own.classes, *lacking})), []
    for at in lacking:
        senders, some = list(sent[at]), np.array(list(sent[at].values()))
        if len(some) > 2:
            means.append(np.median(some, axis=0))
            continue
        fitting = [place for place, name in enumerate(senders) if not doubts[name]]
        if len(fitting) != 1:  # the longer a mean, the surer the prompt: only its direction counts
            units = some / np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-12)
            losses = log_loss(prompt(units, every), np.full(len(units), every.index(at)))
            fitting = [int(losses.argmin())]
        means.append(some[fitting[0]])
        givers[at] = senders[fitting[0]]
    counts = np.full(len(lacking), float(np.median(own.counts)))
    sums = np.reshape(means, (len(lacking), own.sums.shape[1])) * counts[:, None]
    return Sums(lacking, counts, sums), givers


def notes(own: Sums, peers: Mapping[str, Sums], doubted: Mapping[str, Names]) -> list[str]:
    """Return sentences on classes of peers that do not count, and on odd labels of the node.

    If two peers or more, and most of those that have a class, contradict its images, it is this
    node's labels that are odd.
    """
    said = []
    for peer, wrong in doubted.items():
        looks = [f"{name!r} looks like {other!r}" for name, other in list(wrong.items())[:2]]
        more = f", and {len(wrong) - 2} more do not fit their names" if len(wrong) > 2 else ""
        said.append(f"it leaves out classes of {peer}: {', '.join(looks)}{more}")
    odd = []
    for name in own.classes:
        having = [peer for peer, sums in peers.items() if name in sums.classes]
        against = sum(name in doubted.get(peer, {}) for peer in having)
        odd += [name] if against > 1 and 2 * against > len(having) else []
    if odd:
        said.append(
            f"most other nodes have other images under {', '.join(map(repr, odd))} than this "
            "node: check the labels of its images"
        )
    return said


def _misses(names: Names) -> Names:
    return {name: other for name, other in names.items() if name != other}


def _sure(
    peer: Sums, names: Names, known: Sums, logits: Callable[[Floats], Floats], scores: Floats
) -> Names:
    """Return the classes whose mean lies three quarters of the way to another's, or further.

    scores: the logits of the known classes' own means.
    """
    found = dict[str, str]()
    for name, other in _misses(names).items():
        here, there = known.classes.index(name), known.classes.index(other)
        (score,) = logits(peer.means[[peer.classes.index(name)]])
        if 2.0 * (score[there] - score[here]) > scores[there, there] - scores[there, here]:
            found[name] = other
    return found


def _doubts(names: Names, sure: Names, accuracy: float) -> Names:
    """Return the classes to leave out of those that the node has. names: of their means."""
    wrong, count = _misses(names), len(names)
    right = count - len(wrong)
    if right < SHARE * accuracy * count and at_most(right, count, accuracy) < CHANCE:
        return wrong
    if at_most(count - len(sure), count, accuracy) < CHANCE:
        return sure
    pairs = {name: other for name, other in sure.items() if sure.get(other) == name}
    likely = math.comb(count, 2) * ((1.0 - accuracy) / max(count - 1, 1)) ** 2
    return pairs if likely < PAIR else {}


def at_most(right: int, count: int, share: float) -> float:
    """Return the probability that at most `right` of `count` are right, each with `share`."""
    if share <= 0.0 or share >= 1.0 or right >= count:
        return float(right >= count or share <= 0.0)
    return math.fsum(
        math.exp(
            math.lgamma(count + 1)
            - math.lgamma(k + 1)
            - math.lgamma(count - k + 1)
            + k * math.log(share)
            + (count - k) * math.log1p(-share)
        )
        for k in range(right + 1)
    )


def counted(own: Sums | None, peers: Mapping[str, Sums], wrong: Mapping[str, Names]) -> list[Sums]:
    """Return the peers' sums without classes named wrong, and with counts of at most TIMES the
    median of a class's counts.
    """
    kept = [_kept(peer, wrong.get(name, {})) for name, peer in peers.items()]
    counts: dict[str, list[float]] = {}
    for one in kept if own is None else [own, *kept]:
        for name, count in zip(one.classes, one.counts.tolist(), strict=True):
            counts.setdefault(name, []).append(count)
    most = {name: TIMES * median_low(some) for name, some in counts.items()}
    return [_capped(one, most) for one in kept if one.classes]


def _kept(peer: Sums, wrong: Names) -> Sums:
    if not wrong:
        return peer
    stay = np.array([name not in wrong for name in peer.classes])
    names = tuple(name for name in peer.classes if name not in wrong)
    return Sums(names, peer.counts[stay], peer.sums[stay])


def _capped(peer: Sums, most: Mapping[str, float]) -> Sums:
    counts = np.minimum(peer.counts, [most[name] for name in peer.classes])
    if (counts == peer.counts).all():
        return peer
    return Sums(peer.classes, counts, peer.means * counts[:, None])
