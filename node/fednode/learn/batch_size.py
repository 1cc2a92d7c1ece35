"""The number of images in a step: tuning.batch_size, or fewer where the memory of a GPU ends."""

from __future__ import annotations

import torch

from fednode.clip.placed import fits


class BatchSize:
    """How many images a step has at most. now: the number."""

    def __init__(self, set_: int, device: torch.device) -> None:
        """Begin with the number of the settings."""
        self.now = self._set = set_
        self._device = device

    def smaller(self, count: int, fault: torch.OutOfMemoryError) -> int:
        """Return how many images a step may have if `count` were too many for a GPU's memory.

        Raise ModelError if there is no smaller number.
        """
        with fits(self._device, "in a step with one image"):
            if count == 1:
                raise fault
        self.now = min(self.now, count // 2)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return self.now

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a sentence if steps have fewer images than the settings say."""
        if self.now == self._set:
            return ()
        return (
            f"The memory of {self._device} holds no step of {self._set} images "
            f"(tuning.batch_size): steps have {self.now} images at most.",
        )
