"""Tensors of the host on their way to the device."""

from __future__ import annotations

import torch
from torch import Tensor


def placed(host: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host on a device; the host does not wait for a GPU.

    An ordinary copy to a GPU waits for all work that was given to the GPU before. A copy from
    pinned memory does not.
    """
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)
