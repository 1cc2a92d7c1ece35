"""Time both sides in turns of at least TURN_S or one step, and compare the medians of all steps.

The reference must reach REFERENCE_SHARE of the rate at which torch multiplies two large matrices in
the same run, or the comparison is void. `floor_s` is the time for the fewest operations of a step
at that rate. fednode multiplies with other kernels, whose rate is `own_rate`. If `own_rate` is
higher than `rate`, fednode can be faster than the floor.

Rows named "-cached" compare fednode with itself: the reference encodes the images in every step,
the other side takes their tokens from the cache. Their gradients must be equal bit for bit
(difference 0).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

import torch
from torch import Tensor

from fednode.clip import backbone, blocks
from fednode.clip.backbone import Backbone
from fednode.clip.captured import ORDINARY, Captures, recorder_of
from fednode.clip.settings import MINI, ModelSettings
from fednode.clip.trunk import use_workers
from fednode.lab.bench.encoders import Cached, Encoders, Ours, Plain
from fednode.lab.bench.floor import hybrid, operations, plain_operations
from fednode.lab.bench.losses import loss
from fednode.lab.bench.tasks import Inputs, Method, Task, inputs

REFERENCE_SHARE: Final = 0.6
MATRIX: Final = 2048
TURN_S: Final = 1.0
"""A turn takes a short step several times, as a node takes its steps one after the other."""
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRow:
    """The result of one task; times are medians in seconds per step.

    Attributes:
        ratio: reference_s / ours_s
        floor_share: floor_s / ours_s
        reference_share: the reference's operations per second, as a share of `rate`
        difference: the largest relative difference between the two sides' gradients
        judged: reference_share has a lower limit; it has none for "-cached" rows, for
            convolutional trunks, because convolutions do not run at the rate of matrix products,
            and on a GPU, where launches bound open_clip's small steps
        steps: steps a second of ours
        reference_mb, ours_mb: most memory of a GPU that a step held, in megabytes, with the model;
            None on a CPU
        rate: operations per second of torch's large matrix product
        own_rate: operations per second of the matrix product that fednode uses
    """

    name: str
    reference_s: float
    ours_s: float
    ratio: float
    floor_s: float
    floor_share: float
    reference_share: float
    difference: float
    judged: bool
    steps: float
    reference_mb: float | None
    ours_mb: float | None
    rate: float
    own_rate: float


def random_model(name: str, precision: Precision, device: str, threads: int = 1) -> Backbone:
    """Return a model with random weights, which do not matter for speed.

    fednode-mini has its own weights.
    """
    torch.set_num_threads(threads)
    use_workers(threads)
    torch.manual_seed(0)
    settings = ModelSettings(name=name, device=device, precision=precision)
    return backbone.load(settings) if name == MINI else backbone.untrained(settings)


def rows(frozen: Backbone, tasks: Sequence[Task], repeats: int) -> Iterator[TuningRow]:
    """Measure the tasks that fit the model.

    Tasks with visual prompts need a ViT. Tasks with the cache need a model whose nodes keep tokens.
    """
    for task in tasks:
        fits = frozen.vision.plain or not task.visual
        # The reference's steps with several prompts or deep ones are written for CLIP's blocks.
        fits = fits and (frozen.text.shares or task.method in {"text", "zerodfl"})
        if fits and (frozen.vision.compact or not task.cached):
            yield measure(frozen, task, repeats)


def measure(frozen: Backbone, task: Task, repeats: int) -> TuningRow:
    """Time one task."""
    given = inputs(frozen, task)
    kinds: tuple[type[Encoders], ...] = (Ours, Cached) if task.cached else (Plain, Ours)
    sides = [Step(frozen, given, kind) for kind in kinds]
    difference = _difference(*(side.run() for side in sides))
    theirs_mb, ours_mb = (_peak(side.settle, frozen.device) for side in sides)
    times: tuple[list[float], list[float]] = ([], [])
    rates: list[tuple[float, float]] = []
    for _ in range(repeats):
        rates.append(matrix_rates(frozen))
        for kept, side in zip(times, sides, strict=True):
            until = time.perf_counter() + TURN_S
            kept.append(_seconds(side.run, frozen.device))
            while time.perf_counter() < until:
                kept.append(_seconds(side.run, frozen.device))
    reference_s, ours_s = (median(seconds) for seconds in times)
    rate, own_rate = (median(side_rates) for side_rates in zip(*rates, strict=True))
    floor_s = operations(frozen, given, task.cached) / rate
    return TuningRow(
        name=task.name + ("-bf16" if frozen.precision == "bfloat16" else ""),
        reference_s=reference_s,
        ours_s=ours_s,
        ratio=reference_s / ours_s,
        floor_s=floor_s,
        floor_share=floor_s / ours_s,
        reference_share=(operations if task.cached else plain_operations)(frozen, given)
        / reference_s
        / rate,
        difference=difference,
        judged=not task.cached
        and not (hybrid(frozen) and len(given.pixels))
        and frozen.device.type == "cpu",
        steps=1 / ours_s,
        reference_mb=theirs_mb,
        ours_mb=ours_mb,
        rate=rate,
        own_rate=own_rate,
    )


def matrix_rates(frozen: Backbone) -> tuple[float, float]:
    """Return operations per second of a large matrix product: torch's and fednode's."""
    dtype = torch.bfloat16 if frozen.precision == "bfloat16" else torch.float32
    square = torch.randn(MATRIX, MATRIX, device=frozen.device, dtype=dtype)
    products = (lambda: square @ square, lambda: blocks.linear(square, square))
    rates = [2 * MATRIX**3 / _seconds(product, frozen.device) for product in products]
    return rates[0], rates[1]


class Step:
    """A tuning step of one side: forward, backward, optimizer."""

    def __init__(self, frozen: Backbone, given: Inputs, side: Callable[..., Encoders]) -> None:
        self._given, self._scale = given, frozen.logit_scale
        names = given.names if side is Plain else given.needed
        self._encoders = side(frozen, names, given.task.context_length)
        start = given.start.items()
        self.prompts = {name: array.clone().requires_grad_() for name, array in start}
        self._descent = _descent(given.task.method, list(self.prompts.values()))
        self._captures = Captures(recorder_of(frozen.device))
        self._settling = ORDINARY + 1 if frozen.device.type == "cuda" else 0

    def settle(self) -> None:
        """Take the steps on a GPU after which towers replay their passes."""
        for _ in range(self._settling):
            self.run()

    def run(self) -> tuple[float, list[Tensor]]:
        """Take a step; return loss and gradients."""
        with self._captures:
            value = loss(self._encoders, self._given, self.prompts, self._scale)
        self._descent.zero_grad(set_to_none=True)
        torch.autograd.backward(value)
        self._descent.step()
        return float(value.detach()), [
            prompt.grad for prompt in self.prompts.values() if prompt.grad is not None
        ]


def _descent(method: Method, leaves: list[Tensor]) -> torch.optim.Optimizer:
    """Return the optimizer of each method's paper."""
    if method == "feddpt":
        return torch.optim.AdamW(leaves, lr=5e-4, weight_decay=0.01)
    if method in {"plan-a", "plan-b"}:
        return torch.optim.SGD(leaves, lr=0.0015, momentum=0.9, weight_decay=5e-4)
    return torch.optim.SGD(leaves, lr=0.003, momentum=0.9, weight_decay=1e-5)


def _difference(theirs: tuple[float, list[Tensor]], ours: tuple[float, list[Tensor]]) -> float:
    pairs = zip(theirs[1], ours[1], strict=True)
    return max(
        float((reference - own).abs().max() / reference.abs().max()) for reference, own in pairs
    )


def _peak(work: Callable[[], None], device: torch.device) -> float | None:
    """Work, and return how many megabytes of a GPU were in use at most; None on a CPU."""
    if device.type != "cuda":
        work()
        return None
    torch.cuda.reset_peak_memory_stats(device)
    work()
    return torch.cuda.max_memory_allocated(device) / 1e6


def _seconds(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun
