"""A snapshot goes into a row and a set of tensors, and comes back as it was."""

from __future__ import annotations

import json
from dataclasses import replace

from fednode.core.types import MergeCounts, Tensors
from fednode.storage.journal import SnapshotRow
from fednode.storage.rows import body_of, joined, split
from tests.unit.storage.stored import snapshot


def test_a_snapshot_comes_back_with_its_counts_and_its_class_names() -> None:
    named = Tensors({"head": [[1.0], [2.0]]}, ("cat", "dog"))
    held = snapshot(3)
    policy = replace(held.policy, tuned=named)
    held = replace(held, policy=policy, merge_counts=MergeCounts(3, 1))
    body = json.loads(json.dumps(body_of(held)))
    row = SnapshotRow(3, joined(held).digest, body)
    assert split(row, joined(held)) == held
