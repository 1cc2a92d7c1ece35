"""Tensors of the host on their way to the device, and the device's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fednode.errors import ModelError


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host on a device.

    A copy from pinned memory does not wait for the work that a GPU has, as an ordinary one does.
    """
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


@contextmanager
def oom_as_error(device: torch.device, doing: str) -> Iterator[None]:
    """Raise ModelError if the memory of a GPU ends until the block ends.

    doing: what needs the memory, as the end of "the memory of cuda:0 ends ...".
    """
    try:
        yield
    except torch.OutOfMemoryError as fault:
        raise ModelError(
            f"the memory of {device} ends {doing}: choose a smaller model (model.name), "
            "model.precision bfloat16 or model.device cpu, or let fewer nodes use this GPU."
        ) from fault


def limit_memory(device: torch.device, share: float | None) -> None:
    """Let this process use a share of a GPU's memory; None: all of it."""
    if share is not None and device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(share, device)
