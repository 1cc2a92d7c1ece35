"""Steps get smaller where a memory ends; test_torch_learner.py has the learner around it."""

from __future__ import annotations

import pytest
import torch

from fednode.learn.local_tuning import BatchSize

FULL = torch.OutOfMemoryError("CUDA out of memory")


def test_it_halves_and_never_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[bool] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    size = BatchSize(200, torch.device("cuda:0"))
    assert not size.notes
    assert [size.halve(count, FULL) for count in (200, 100, 200, 7)] == [100, 50, 50, 3]
    assert len(emptied) == 4
    assert size.notes == (
        "The memory of cuda:0 holds no step of 200 images (tuning.batch_size): steps have 3 images "
        "at most.",
    )
