"""A tensor of the host comes to a device without a wait."""

from __future__ import annotations

import pytest
import torch

from fednode.clip.device import limit_memory, oom_as_error, to_device
from fednode.errors import ModelError


def test_on_a_cpu_it_is_the_tensor_itself() -> None:
    here = torch.tensor([1, 2])
    assert to_device(here, torch.device("cpu")) is here


def test_a_gpu_copies_from_pinned_memory_in_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned, device = torch.tensor([1, 2]), torch.device("cuda:0")
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda _: pinned)
    monkeypatch.setattr(torch.Tensor, "to", lambda *words, **how: (*words, how))
    found = to_device(torch.tensor([1, 2]), device)
    assert found == (pinned, device, {"non_blocking": True})


def test_a_memory_that_ends_is_a_sentence() -> None:
    wanted = r"the memory of cuda:0 ends in a step: choose a smaller model \(model.name\)"
    with pytest.raises(ModelError, match=wanted), oom_as_error(torch.device("cuda:0"), "in a step"):
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("device", "share", "wanted"),
    [("cuda:0", 0.25, [0.25]), ("cuda:0", None, []), ("cpu", 0.25, [])],
)
def test_a_share_of_the_memory_is_a_limit_on_a_gpu_alone(
    device: str, share: float | None, wanted: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda part, _: asked.append(part)
    )
    limit_memory(torch.device(device), share)
    assert asked == wanted
