"""A tensor of the host comes to a device without a wait."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fednode.clip.placed import placed


def test_on_a_cpu_it_is_the_tensor_itself() -> None:
    here = torch.tensor([1, 2])
    assert placed(here, torch.device("cpu")) is here


def test_a_gpu_copies_from_pinned_memory_in_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    pinned = torch.tensor([1, 2])

    def pin(_: torch.Tensor) -> torch.Tensor:
        calls.append("pinned")
        return pinned

    def to(one: torch.Tensor, *where: Any, **how: Any) -> torch.Tensor:
        calls.append((where, how))
        return one

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", to)
    assert placed(torch.tensor([1, 2]), torch.device("cuda:0")) is pinned
    assert calls == ["pinned", ((torch.device("cuda:0"),), {"non_blocking": True})]
