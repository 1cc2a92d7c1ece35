"""A snapshot as a row of the journal and one set of tensors, and back."""

from __future__ import annotations

from typing import Final, cast

from fednode.core.types import Array, Json, MergeCounts, PolicyState, Snapshot, Tensors
from fednode.storage.journal import SnapshotRow

CLASSES: Final = "classes"
"""The row's entry for class names of rows of tensors, by group of tensors."""
_GROUPS: Final = ("tensors", "tuned", "carry", "arrays", "best")


def body_of(snapshot: Snapshot) -> dict[str, Json]:
    """Return what a row holds of a snapshot beside its round and its tensors."""
    return {
        "data": dict(snapshot.policy.data),
        "metrics": dict(snapshot.metrics),
        "best_round": snapshot.best_round,
        "best_validation": snapshot.best_validation if snapshot.best else None,
        "merge_counts": list(snapshot.merge_counts),
        **_classes_of(snapshot),
    }


def joined(snapshot: Snapshot) -> Tensors:
    """Return all tensors of a snapshot in one set, named group/name."""
    return Tensors.taking(
        {
            f"{group}/{name}": array
            for group, tensors in _parts(snapshot).items()
            for name, array in tensors.items()
        }
    )


def _parts(snapshot: Snapshot) -> dict[str, Tensors]:
    """Return all tensors of a snapshot by group."""
    policy = snapshot.policy
    parts = (policy.tensors, policy.tuned, policy.carry, policy.arrays, snapshot.best)
    return dict(zip(_GROUPS, parts, strict=True))


def _classes_of(snapshot: Snapshot) -> dict[str, Json]:
    """Return an entry of the journal with the class names of each group that has some, or {}."""
    named = {
        group: tensors.classes for group, tensors in _parts(snapshot).items() if tensors.classes
    }
    names: dict[str, Json] = {group: list(classes) for group, classes in named.items()}
    return {CLASSES: names} if names else {}


def split(row: SnapshotRow, together: Tensors) -> Snapshot:
    """Return the snapshot that `joined` joined; the rest comes from the journal's row."""
    arrays: dict[str, dict[str, Array]] = {group: {} for group in _GROUPS}
    for name, array in together.items():
        group, _, inner = name.partition("/")
        arrays[group][inner] = array
    body = row.body
    classes = body.get(CLASSES, {})
    assert isinstance(classes, dict), "the row's checksum held"
    parts = {
        group: Tensors(inside, cast("list[str]", classes.get(group, [])))
        for group, inside in arrays.items()
    }
    data, metrics, best = body["data"], body["metrics"], body["best_validation"]
    assert isinstance(data, dict), "the row's checksum held"
    assert isinstance(metrics, dict), "the row's checksum held"
    policy = PolicyState(
        row.round, parts["tensors"], parts["tuned"], parts["carry"], data, parts["arrays"]
    )
    return Snapshot(
        policy,
        {name: float(str(value)) for name, value in metrics.items()},
        parts["best"],
        int(str(body["best_round"])),
        float("-inf") if best is None else float(str(best)),
        MergeCounts(*cast("list[int]", body["merge_counts"])),
    )
