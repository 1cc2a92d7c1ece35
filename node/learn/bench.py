"""Time local tuning against open_clip as it is used in the papers' code; see `fednode bench`.

The reference is written plainly: every class prompt at the model's full length through the text
transformer, images through the vision tower where features are not cached, weights frozen, images
under no_grad. It must reach REFERENCE_SHARE of the rate of a large matrix product measured in the
same run, or the comparison is void. Ours is what nodes run. Both do the same step on the same
numbers; they take turns, and medians are compared.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from node.clip import backbone
from node.clip.backbone import Backbone
from node.clip.settings import ModelSettings
from node.learn.context import NAME, ContextObjective
from node.learn.settings import TuningSettings

REFERENCE_SHARE: Final = 0.6
MATRIX: Final = 2048
LR: Final = 0.003
WORDS: Final = ("dog", "grand piano", "airplane", "stop sign", "electric guitar", "ceiling fan",
                "cup", "lotus", "yin yang", "umbrella", "scissors", "dollar bill", "crab", "panda",
                "okapi", "ibis", "pagoda", "euphonium", "wild cat", "water lilly")  # fmt: skip
Images = Literal["none", "cached", "encoded"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Task:
    """One row: classes, context length, images of a step, and what is done about them."""

    name: str
    classes: int
    context_length: int
    images: int
    how: Images


TASKS: Final = (
    Task("text-100x16", 100, 16, 0, "none"),
    Task("zerodfl-epoch-cached", 20, 4, 160, "cached"),
    Task("zerodfl-epoch-uncached", 20, 4, 160, "encoded"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Medians in seconds; floor_s: ours at the rate of a large matrix product.

    reference_share: of that rate, reached by the reference. difference: largest between the two
    gradients, relative.
    """

    name: str
    reference_s: float
    ours_s: float
    ratio: float
    floor_s: float
    floor_share: float
    reference_share: float
    difference: float


def random_model(name: str, precision: Precision, device: str, threads: int = 1) -> Backbone:
    """Return an open_clip architecture with random weights: speed does not hang on them."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    return backbone.untrained(ModelSettings(name=name, device=device, precision=precision))


def rows(frozen: Backbone, repeats: int) -> Iterator[Row]:
    """Measure every task; whoever prints them looks whether the reference was a fair one."""
    suffix = "-bf16" if frozen.precision == "bfloat16" else ""
    for task in TASKS:
        yield measure(frozen, task, repeats, task.name + suffix)


def measure(frozen: Backbone, task: Task, repeats: int, name: str) -> Row:
    """Time one task."""
    names = tuple(f"{WORDS[at % len(WORDS)]} {at}" for at in range(task.classes))
    reference, ours = _Reference(frozen, task, names), _Ours(frozen, task, names)
    theirs, mine = reference.step(), ours.step()  # warms up, too
    difference = float((theirs - mine).abs().max() / theirs.abs().max())
    work = [_flops(one.step) for one in (reference, ours)]
    times: tuple[list[float], list[float]] = ([], [])
    rates: list[float] = []
    for _ in range(repeats):
        rates.append(matrix_rate(frozen))
        for kept, one in zip(times, (reference, ours), strict=True):
            kept.append(_seconds(one.step, frozen.device))
    reference_s, ours_s, rate = median(times[0]), median(times[1]), median(rates)
    return Row(
        name,
        reference_s,
        ours_s,
        reference_s / ours_s,
        work[1] / rate,
        work[1] / rate / ours_s,
        work[0] / reference_s / rate,
        difference,
    )


def matrix_rate(frozen: Backbone) -> float:
    """Return floating point operations a second of a large matrix product."""
    dtype = torch.bfloat16 if frozen.precision == "bfloat16" else torch.float32
    one = torch.randn(MATRIX, MATRIX, device=frozen.device, dtype=dtype)
    return float(2 * MATRIX**3 / _seconds(lambda: one @ one, frozen.device))


class _Step(ABC):
    """A step of tuning: forward, backward, descent; returns the gradient of the context."""

    def __init__(self, frozen: Backbone, task: Task, names: tuple[str, ...]) -> None:
        draw = torch.Generator().manual_seed(1)
        self.frozen, self.task, self.names = frozen, task, names
        width, device = frozen.text.width, frozen.device
        self.context = 0.02 * torch.randn(task.context_length, width, generator=draw).to(device)
        self.labels = (torch.arange(task.images) % task.classes).to(device)
        features = torch.randn(task.images, _embedding(frozen), generator=draw).to(device)
        self.features = F.normalize(features, dim=-1)
        side = frozen.model.visual.image_size
        side = side[0] if isinstance(side, tuple) else side
        count = task.images if task.how == "encoded" else 0
        self.pixels = torch.randn(count, 3, side, side, generator=draw).to(device)

    @abstractmethod
    def loss(self, context: Tensor) -> Tensor:
        """Return what is minimised."""

    def step(self) -> Tensor:
        """Take one step from the same start; return the gradient."""
        context = self.context.clone().requires_grad_()
        descent = torch.optim.SGD([context], lr=LR, momentum=0.9)
        torch.autograd.backward(self.loss(context))
        descent.step()
        assert context.grad is not None
        return context.grad


class _Reference(_Step):
    """open_clip's own modules at full length, as the papers' code calls them."""

    def __init__(self, frozen: Backbone, task: Task, names: tuple[str, ...]) -> None:
        super().__init__(frozen, task, names)
        tower: Any = getattr(frozen.model, "text", frozen.model)
        self.tower = tower
        held = " ".join(["X"] * task.context_length)
        texts = [f"{held} {name}." for name in names]
        self.ids = frozen.tokenizer(texts, tower.context_length).to(frozen.device)

    def loss(self, context: Tensor) -> Tensor:
        tower, count = self.tower, len(context)
        with self.frozen.autocast():
            embedded = tower.token_embedding(self.ids)
            shared = context.expand(len(embedded), -1, -1)
            x = torch.cat([embedded[:, :1], shared, embedded[:, 1 + count :]], dim=1)
            x = tower.transformer(x + tower.positional_embedding, attn_mask=tower.attn_mask)
            x = tower.ln_final(x)[torch.arange(len(x)), self.ids.argmax(dim=-1)]
            texts = F.normalize((x @ tower.text_projection).float(), dim=-1)
        if self.task.how == "none":
            return texts.square().cumsum(dim=1).mean()
        features = self.features
        if self.task.how == "encoded":
            with torch.no_grad(), self.frozen.autocast():
                F.normalize(self.frozen.model.encode_image(self.pixels).float(), dim=-1)
        return F.cross_entropy(self.frozen.logit_scale * features @ texts.T, self.labels)


class _Ours(_Step):
    """What a node's learner runs: the objective on features that were encoded once."""

    def __init__(self, frozen: Backbone, task: Task, names: tuple[str, ...]) -> None:
        super().__init__(frozen, task, names)
        settings = TuningSettings(context_length=task.context_length)
        self.objective = ContextObjective(frozen, settings)
        self.tokens = frozen.text.tokens(names, task.context_length)

    def loss(self, context: Tensor) -> Tensor:
        if self.task.how == "none":
            with self.frozen.autocast():
                return self.frozen.text.encode(self.tokens, context).square().cumsum(dim=1).mean()
        prompts = {NAME: context}
        return self.objective.loss(prompts, {}, self.features, self.labels, self.names)


def _embedding(frozen: Backbone) -> int:
    with torch.no_grad():
        return int(frozen.text.encode(frozen.text.tokens(["x"])).shape[1])


def _flops(step: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def _seconds(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun
