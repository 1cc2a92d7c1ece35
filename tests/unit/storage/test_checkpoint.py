"""A checkpoint is one file that says all of its round; any reader of safetensors can look at it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors
import safetensors.numpy

from fednode.core.types import MergeCounts, Tensors
from fednode.storage.checkpoint import Checkpoint, Damaged, encode, read
from tests.unit.storage.stored import FACTS, snapshot


def test_a_checkpoint_comes_back_with_its_counts_class_names_and_settings(tmp_path: Path) -> None:
    named = Tensors({"head": [[1.0], [2.0]]}, ("cat", "dog"))
    whole = snapshot(3)
    policy = replace(whole.policy, tuned=named)
    whole = replace(whole, policy=policy, merge_counts=MergeCounts(3, 1))
    path = tmp_path / "file"
    for one in (Checkpoint(whole, FACTS), Checkpoint(snapshot(1, best=False), {})):
        path.write_bytes(encode(one))
        assert read(path) == one


def test_its_metadata_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(encode(Checkpoint(snapshot(3), FACTS)))
    with safetensors.safe_open(path, "numpy") as file:
        head = file.metadata()
        assert "tuned/context" in file.keys()  # noqa: SIM118 (a reader, no dictionary)
    assert (head["format"], head["round"]) == ("1", "3")
    assert json.loads(head["settings"]) == FACTS
    assert len(head["digest"]) == 64


@pytest.mark.parametrize("head", [None, {"format": "1"}, {"format": "one", "digest": ""}])
def test_another_safetensors_file_is_no_checkpoint(
    tmp_path: Path, head: dict[str, str] | None
) -> None:
    path = tmp_path / "file"
    path.write_bytes(safetensors.numpy.save({"x": snapshot(1).policy.tensors["context"]}, head))
    with pytest.raises(Damaged, match="is no checkpoint"):
        read(path)
