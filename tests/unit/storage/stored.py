"""A state directory with some rounds: what tests write, and where it lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fednode.core.types import PolicyState, Snapshot, Tensors
from fednode.storage.disk import Disk
from fednode.storage.store import Store, newest

FACTS = {"mesh": "m", "policy.name": "zerodfl"}


def snapshot(number: int, best: bool = True) -> Snapshot:
    """Return a snapshot whose every part depends on the round."""

    def tensors(seed: int) -> Tensors:
        return Tensors({"context": np.full((4, 8), seed, np.float32)})

    policy = PolicyState(
        number,
        tensors(number),
        tensors(number + 100),
        Tensors({"momentum/context": np.full((4, 8), number + 200, np.float32)}),
        {"chosen": {"b": number}, "pool": {"c": [number, 0]}},
        Tensors({"pool.c": np.full((2, 8), number + 300, np.float32)}),
    )
    metrics = {"loss": 1.0 / number, "own": 0.5}
    if not best:
        return Snapshot(policy, metrics)
    return Snapshot(policy, metrics, tensors(number + 400), number, 0.75)


def traffic(number: int) -> dict[str, int]:
    return {"messages_out": 2 * number}


def filled(folder: Path, rounds: int, disk: Disk | None = None) -> Store:
    """Return an open store with some rounds adopted."""
    store = Store(folder, disk)
    store.bind(FACTS)
    for number in range(1, rounds + 1):
        store.commit(snapshot(number), traffic(number))
    return store


def read_snapshot(folder: Path) -> Snapshot:
    """Return the newest snapshot of a directory that a running node may be using."""
    return newest(folder)[0].snapshot


def files(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").iterdir(), key=lambda path: path.stat().st_mtime_ns)


def file_of(folder: Path, number: int) -> Path:
    """Return the checkpoint of a round."""
    return folder / "checkpoints" / f"{number:06d}.safetensors"
