"""A round of local prompt tuning, from a job's arrays to its report.

`tune` is the round, to be read from top to bottom. `Batches` gives the images of its steps.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from fednode.clip.device import oom_as_error
from fednode.core.types import PRIVATE, Job, Progress, Report, Tensors
from fednode.data.base import Split
from fednode.errors import ModelError
from fednode.learn import optimizer
from fednode.learn.features import Images
from fednode.learn.learner import Cancelled
from fednode.learn.prompt_module import Batch, JobInputs, PromptModule, to_array, to_params
from fednode.learn.settings import TuningSettings


def tune(
    job: Job,
    module: PromptModule,
    batches: Batches,
    settings: TuningSettings,
    cancelled: Callable[[], bool],
    progress: Callable[[Progress], None],
) -> Report:
    """Train a job's arrays on the batches; return them with the mean loss and the carry.

    Raise Cancelled if `cancelled` turns true, ModelError if the tuned arrays are not finite.
    """
    device = module.clip.device
    shared = to_params(job.tensors, device)
    kept = {name: job.carry.get(PRIVATE + name, x) for name, x in module.private(job.seed).items()}
    private = to_params(kept, device)
    params = {name: param.requires_grad_() for name, param in (shared | private).items()}
    rate = optimizer.learning_rate(settings, job.round, job.rounds)
    descent = optimizer.build(settings, params, rate, job.carry)
    # The optimizer's state is "<param>/<quantity>"; the rest is the module's.
    own = {name: array for name, array in job.carry.items() if name.split("/")[0] not in params}
    reference, carry = to_params(job.reference, device), to_params(own, device)
    inputs = JobInputs(job, params, reference, carry, batches.classes)
    inputs.state = module.start(inputs)

    losses: list[list[Tensor]] = []  # of each step; most modules have one loss in a step
    for batch in batches:
        if cancelled():
            raise Cancelled
        try:
            losses.append(take_step(batch, module, inputs, descent))
        except torch.OutOfMemoryError as error:
            batches.split(error)  # its images come again, in smaller batches
            continue
        # Reading a loss waits for a GPU, so its progress has none.
        loss = _total(losses[-1]) if device.type == "cpu" else math.nan
        progress(Progress(len(losses), batches.steps, loss))

    tuned = Tensors({name: to_array(params[name]) for name in shared})
    means = [_total(step) for step in losses]
    if not tuned.finite():
        raise ModelError(
            f"tuning diverged in round {job.round}: the loss went from {means[0]:.4g} to "
            f"{means[-1]:.4g}; lower tuning.lr ({settings.lr:g})."
        )
    next_carry = dict(optimizer.carried(descent, params))
    next_carry |= {PRIVATE + name: to_array(params[name]) for name in private}
    next_carry |= {name: to_array(array) for name, array in module.carry(inputs).items()}
    return Report(
        tensors=tuned,
        metrics={"loss": float(np.mean(means))},
        samples=batches.samples,
        carry=Tensors(next_carry),
        steps=len(losses),
        changed=tuple(name for name in tuned if (tuned[name] != job.tensors[name]).any()),
    )


def take_step(
    batch: Batch, module: PromptModule, inputs: JobInputs, descent: torch.optim.Optimizer
) -> list[Tensor]:
    """Take the optimizer's step for each loss of a batch; return the losses."""
    losses: list[Tensor] = []
    for loss in module.losses(batch, inputs):
        descent.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        # The optimizer skips arrays without a gradient: no momentum and no decay either.
        descent.step()
        losses.append(loss.detach())
    module.after_step(inputs)
    return losses


def _total(losses: list[Tensor]) -> float:
    """Return the sum of a step's losses; waits for the device."""
    return sum(map(float, losses))


class BatchSize:
    """How many images a step has at most: tuning.batch_size, or fewer where a GPU's memory ends."""

    def __init__(self, limit: int, device: torch.device) -> None:
        """Begin with the number of the settings."""
        self.now = self._limit = limit
        self._device = device

    def halve(self, count: int, error: torch.OutOfMemoryError) -> int:
        """Return how many images a step may have if `count` images were too many.

        Raise ModelError if one image was too many.
        """
        with oom_as_error(self._device, "in a step with one image"):
            if count == 1:
                raise error
        self.now = min(self.now, count // 2)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return self.now

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence if steps have fewer images than the settings say."""
        if self.now == self._limit:
            return ()
        return (
            f"The memory of {self._device} holds no step of {self._limit} images "
            f"(tuning.batch_size): steps have {self.now} images at most.",
        )


class Batches:
    """The batches of one job: `iterations` steps, or `epochs` times all images, in a random order.

    The order depends on the seed alone.
    """

    def __init__(
        self,
        images: Images,
        split: Split,
        settings: TuningSettings,
        size: BatchSize,
        seed: int,
        cancelled: Callable[[], bool],
        free_memory: Callable[[], bool] = lambda: False,
    ) -> None:
        """free_memory: frees what a GPU can do without; tells whether there was anything."""
        self.samples, self.classes = len(split.images), split.classes
        self._images, self._split, self._size = images, split, size
        self._steps_most = settings.iterations or math.inf
        self._epochs_left = math.inf if settings.iterations else settings.epochs
        self._order = torch.Generator().manual_seed(seed)
        self._cancelled, self._free_memory = cancelled, free_memory
        self._queue: deque[Tensor] = deque()  # the batches of this epoch, as places of images
        self._current = torch.empty(0, dtype=torch.long)
        self._done = 0

    @property
    def steps(self) -> int:
        """Number of steps of the job, if the size of the batches stays as it is."""
        later = self._epochs_left * -(-self.samples // self._size.now)
        return int(min(self._steps_most, self._done + len(self._queue) + later))

    def __iter__(self) -> Iterator[Batch]:
        while self._epochs_left and self._done < self._steps_most:
            self._epochs_left -= 1
            places = torch.randperm(self.samples, generator=self._order)
            read = self._images.reader(self._split, self._cancelled)
            self._queue = deque(torch.split(places, self._size.now))
            while self._queue and self._done < self._steps_most:
                self._current = self._queue.popleft()
                self._done += 1
                try:
                    batch = read(self._current)
                except torch.OutOfMemoryError as error:
                    self.split(error)
                else:
                    yield batch

    def split(self, error: torch.OutOfMemoryError) -> None:
        """Give the last batch again, in smaller parts, because a GPU's memory ended in its step."""
        self._done -= 1
        if self._free_memory():
            self._queue.appendleft(self._current)
        else:
            parts = torch.split(self._current, self._size.halve(len(self._current), error))
            self._queue.extendleft(reversed(parts))
