"""One adopted round as a safetensors file that describes itself.

The file holds the arrays of a snapshot, named group/name. Its metadata holds, as text:

    format      the version of this layout
    round       the number of the round
    settings    the settings that the round was tuned under (JSON)
    state       all else of the snapshot: counters, metrics, class names (JSON)
    digest      SHA-256 of the above and of the arrays
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import safetensors.numpy

from fednode.core.types import Array, MergeCounts, PolicyState, Snapshot, Tensors
from fednode.errors import StateError

FORMAT: Final = 1
GROUPS: Final = ("tensors", "tuned", "carry", "arrays", "best")


class Damaged(Exception):
    """What is wrong with a checkpoint's file."""


class Checkpoint(NamedTuple):
    """A snapshot, and the settings that it was tuned under; {} if they are not known."""

    snapshot: Snapshot
    settings: Mapping[str, str]


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the bytes of a checkpoint's file."""
    snapshot, parts = checkpoint.snapshot, _parts(checkpoint.snapshot)
    state = {
        "data": dict(snapshot.policy.data),
        "metrics": dict(snapshot.metrics),
        "best_round": snapshot.best_round,
        "best_validation": snapshot.best_validation if snapshot.best else None,
        "merge_counts": snapshot.merge_counts,
        "classes": {group: part.classes for group, part in parts.items() if part.classes},
    }
    arrays = {
        f"{group}/{name}": array for group, part in parts.items() for name, array in part.items()
    }
    head = {
        "format": str(FORMAT),
        "round": str(snapshot.policy.round),
        "settings": json.dumps(dict(checkpoint.settings), sort_keys=True),
        "state": json.dumps(state, sort_keys=True),
    }
    digest = _digest(head, Tensors.taking(arrays))
    return safetensors.numpy.save(arrays, {**head, "digest": digest})


def read(path: Path) -> Checkpoint:
    """Return the checkpoint in a file.

    Raise OSError if the system does not give the file, Damaged if its content is not what was
    written, and StateError if a newer fednode wrote it.
    """
    content = path.read_bytes()
    try:
        tensors = Tensors(safetensors.numpy.load(content))
        head = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        version, digest = int(head["format"]), head.pop("digest")
    except Exception as fault:  # whatever a parser raises for foreign bytes
        raise Damaged(f"is no checkpoint ({type(fault).__name__})") from fault
    if version > FORMAT:
        raise StateError(
            f"{path} was written by a newer fednode (format {version}; this version reads "
            f"{FORMAT}), and nothing was changed: use that version or another directory."
        )
    if digest != _digest(head, tensors):
        raise Damaged("does not match its digest")
    return Checkpoint(_snapshot(head, tensors), json.loads(head["settings"]))


def _parts(snapshot: Snapshot) -> dict[str, Tensors]:
    """Return all tensors of a snapshot by group."""
    policy = snapshot.policy
    parts = (policy.tensors, policy.tuned, policy.carry, policy.arrays, snapshot.best)
    return dict(zip(GROUPS, parts, strict=True))


def _digest(head: Mapping[str, str], tensors: Tensors) -> str:
    text = json.dumps([head, tensors.digest], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _snapshot(head: Mapping[str, str], arrays: Tensors) -> Snapshot:
    """Return the snapshot of a sound file."""
    state: dict[str, Any] = json.loads(head["state"])
    groups: dict[str, dict[str, Array]] = {group: {} for group in GROUPS}
    for name, array in arrays.items():
        group, _, inner = name.partition("/")
        groups[group][inner] = array
    tensors, tuned, carry, pools, best = (
        Tensors(inside, state["classes"].get(group, ())) for group, inside in groups.items()
    )
    policy = PolicyState(int(head["round"]), tensors, tuned, carry, state["data"], pools)
    highest = state["best_validation"]
    return Snapshot(
        policy,
        state["metrics"],
        best,
        state["best_round"],
        float("-inf") if highest is None else highest,
        MergeCounts(*state["merge_counts"]),
    )
