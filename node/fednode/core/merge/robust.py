"""Robust merges, which tolerate some dishonest contributions; sums in float64, in the order given.

    mean       weighted mean (FedAvg); one dishonest node moves it anywhere
    median     coordinate-wise median (Yin et al., ICML 2018)
    trimmed    coordinate-wise mean without the `trim` share at either end (Yin et al., ICML 2018)
    krum       multi-Krum: mean of the n - f contributions with the nearest n - f - 2 neighbours
               (Blanchard et al., NeurIPS 2017)
    center     centered clipping: v <- v + mean_i clip(x_i - v), from v = the last merge
               (Karimireddy et al., ICML 2021)
    clip       mean of contributions whose distance from the last merge is clipped

Only mean and clip use weights, because each node reports its own weight. Arrays with the same
contributors are one vector for distances. Distances are clipped to their median, the lower one of
an even number. Bit-equal contributions count once: two nodes that trained never send equal bits,
and copies would support each other.

With fewer than three contributions every rule but mean becomes clip, because nobody can say which
of two is dishonest. Neither moves the merge further than the shorter of the two. If all nodes
contribute some arrays and few nodes contribute others (Fed-DPT's visual tokens and text slots),
krum chooses nodes by the former arrays and averages the latter over the chosen nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from fednode.core.merge.mean import mean
from fednode.core.settings import MergeSettings
from fednode.core.types import Array, Tensors

Vector = npt.NDArray[np.float64]
CENTER_STEPS: Final = 5
CHUNK: Final = 1 << 14  # columns per step, so that their differences stay in a processor's cache


def combine(
    settings: MergeSettings,
    contributed: Sequence[Mapping[str, Array]],
    weights: Sequence[float],
    kept: Mapping[str, Array],
    base_agrees: bool = True,
) -> Tensors:
    """Return the merge of each name in `kept` over its contributors; without any, the kept array.

    Clipping measures from the last merge, `kept`. If the base does not agree (base_agrees is
    False: no more than half of the nodes hold `kept`), clipping measures from the median of the
    contributions, so that all nodes that hear the same contributions agree again.
    """
    merged: dict[str, Array] = dict(kept)
    groups = _groups(contributed, kept)
    vetted = _vetted(settings, contributed, groups)
    for senders, names in groups:
        few = vetted is not None and len(senders) < len(contributed)
        if few:
            senders = tuple(at for at in senders if vetted is None or at in vetted)
        parts = [contributed[at] for at in senders]
        if few or settings.rule == "mean":
            own = [weights[at] for at in senders]
            if parts:
                merged |= {name: mean([part[name] for part in parts], own) for name in names}
            continue
        stacked = np.stack([_flat(part, names) for part in parts])
        single = _single(stacked)
        stacked, own = stacked[single], [weights[senders[at]] for at in single]
        origin = _flat(kept, names) if base_agrees else np.median(stacked, axis=0)
        merged |= _unflat(_merge(settings, stacked, own, origin), names, kept)
    return Tensors(merged)


def tame(settings: MergeSettings, contributed: Sequence[Array]) -> list[Array]:
    """Return contributions, clipped around their median if the rule is robust.

    For merges that use each contribution by itself (PLAN's aggregators). The limit is the median
    of the distances from the coordinate-wise median. Fewer than three contributions are returned as
    they are.
    """
    if settings.rule == "mean" or len(contributed) < 3:
        return list(contributed)
    stacked = np.stack([array.astype(np.float64).ravel() for array in contributed])
    middle = np.median(stacked, axis=0)
    clipped = middle + _clipped(stacked - middle)
    shape = contributed[0].shape
    return [row.reshape(shape).astype(np.float32) for row in clipped]


def _groups(
    contributed: Sequence[Mapping[str, Array]], kept: Mapping[str, Array]
) -> list[tuple[tuple[int, ...], list[str]]]:
    """Return the sets of contributors, each with the arrays that exactly they contribute."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in kept:
        senders = tuple(at for at, arrays in enumerate(contributed) if name in arrays)
        if senders:
            groups.setdefault(senders, []).append(name)
    return list(groups.items())


def _vetted(
    settings: MergeSettings,
    contributed: Sequence[Mapping[str, Array]],
    groups: Sequence[tuple[tuple[int, ...], list[str]]],
) -> frozenset[int] | None:
    """Return the places of the contributions that krum chooses by the arrays that all contribute.

    None if the rule is not krum, or if krum cannot choose.
    """
    common = [names for senders, names in groups if len(senders) == len(contributed)]
    if settings.rule != "krum" or len(contributed) < 3 or not common:
        return None
    stacked = np.stack([_flat(arrays, common[0]) for arrays in contributed])
    single = _single(stacked)
    return frozenset(single[at] for at in _chosen(stacked[single], settings.liars))


def _merge(
    settings: MergeSettings, stacked: Vector, weights: Sequence[float], before: Vector
) -> Vector:
    """Merge rows [n, d] into one vector [d]."""
    count = len(stacked)
    if settings.rule == "clip" or count < 3:
        share = np.asarray(weights, dtype=np.float64) / sum(weights)
        return np.asarray(before + share @ _clipped(stacked - before))
    if settings.rule == "median":
        return np.median(stacked, axis=0)
    if settings.rule == "trimmed":
        cut = min(int(np.ceil(settings.trim * count)), (count - 1) // 2)
        kept: Vector = np.sort(stacked, axis=0)[cut : count - cut]
        return np.asarray(kept.mean(axis=0))
    if settings.rule == "krum":
        return np.asarray(stacked[_chosen(stacked, settings.liars)].mean(axis=0))
    if settings.rule == "center":
        value = before
        for _ in range(CENTER_STEPS):
            value = value + _clipped(stacked - value).mean(axis=0)
        return value
    raise ValueError(f"no merge of contributions is called {settings.rule!r}")


def _chosen(stacked: Vector, liars: int) -> npt.NDArray[np.int64]:
    """Return the rows that multi-Krum averages; with few rows it tolerates fewer liars."""
    count = len(stacked)
    liars = max(0, min(liars, (count - 3) // 2))
    near = max(1, count - liars - 2)
    scores = np.sort(_apart(stacked), axis=1)[:, 1 : near + 1].sum(axis=1)
    return np.sort(np.argsort(scores, kind="stable")[: count - liars])


def _single(stacked: Vector) -> list[int]:
    """Return the places of rows that equal no earlier row (numpy.unique takes seconds here)."""
    first: list[int] = []
    for at, row in enumerate(stacked):
        if not any(np.array_equal(row, stacked[place]) for place in first):
            first.append(at)
    return first


def _apart(stacked: Vector) -> Vector:
    """Return the squared distances [n, n] between rows.

    A matrix product is not used: libraries round it differently, so nodes would choose other rows.
    """
    apart = np.zeros((len(stacked), len(stacked)))
    for start in range(0, stacked.shape[1], CHUNK):
        part = stacked[:, start : start + CHUNK]
        for at in range(len(stacked) - 1):
            apart[at, at + 1 :] += np.square(part[at + 1 :] - part[at]).sum(axis=1)
    return np.asarray(apart + apart.T)


def _clipped(changes: Vector) -> Vector:
    """Return rows shortened to at most their lower median length."""
    lengths = np.linalg.norm(changes, axis=1)
    limit = float(np.sort(lengths)[(len(lengths) - 1) // 2])
    factors = np.ones_like(lengths)
    np.divide(limit, lengths, out=factors, where=lengths > limit)
    return np.asarray(changes * factors[:, None])


def _flat(arrays: Mapping[str, Array], names: Sequence[str]) -> Vector:
    return np.concatenate([arrays[name].astype(np.float64).ravel() for name in names])


def _unflat(vector: Vector, names: Sequence[str], like: Mapping[str, Array]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    start = 0
    for name in names:
        size = like[name].size
        part = vector[start : start + size].reshape(like[name].shape)
        arrays[name] = part.astype(np.float32)
        start += size
    return arrays
