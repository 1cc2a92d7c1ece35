"""The timed steps: their sizes, and the numbers that both sides start with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import SAMPLE_NAMES, Backbone

Method = Literal["text", "zerodfl", "feddpt", "plan-a", "plan-b"]
BOTTLENECK: Final = 8
"""PLAN's aggregators narrow each prompt vector to 1/8 of its width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row of the benchmark: a method's step and its sizes.

    Attributes:
        images: images in the step's batch
        encoded: the reference encodes them in every step
        clients: clients whose prompts there are: Fed-DPT's n domains, PLAN's K
        cached: fednode takes the images' tokens from the cache; the reference is fednode without it
    """

    name: str
    method: Method
    classes: int
    context_length: int
    images: int = 0
    encoded: bool = False
    clients: int = 1
    cached: bool = False

    @property
    def visual(self) -> bool:
        """Tell whether the vision tower has prompts."""
        return self.method in {"feddpt", "plan-a", "plan-b"}


TASKS: Final = (
    Task(name="text-100x16", method="text", classes=100, context_length=16),
    Task(name="zerodfl-epoch-cached", method="zerodfl", classes=20, context_length=4, images=160),
    Task(
        name="zerodfl-epoch-uncached",
        method="zerodfl",
        classes=20,
        context_length=4,
        images=160,
        encoded=True,
    ),
    Task(name="feddpt-step", method="feddpt", classes=65, context_length=16, images=32, clients=4),
    Task(name="plan-stage-a", method="plan-a", classes=65, context_length=8, images=32, clients=3),
    Task(name="plan-stage-b", method="plan-b", classes=65, context_length=8, images=32, clients=3),
    Task(
        name="feddpt-step-cached",
        method="feddpt",
        classes=65,
        context_length=16,
        images=32,
        clients=4,
        cached=True,
    ),
    Task(
        name="plan-stage-a-cached",
        method="plan-a",
        classes=65,
        context_length=8,
        images=32,
        clients=3,
        cached=True,
    ),
)
SWEEPS: Final = {
    "classes": tuple(
        Task(name=f"text-{classes}x{length}", method="text", classes=classes, context_length=length)
        for length in (4, 16)
        for classes in (10, 20, 50, 100, 200, 400)
    ),
    "shots": tuple(
        Task(
            name=f"zerodfl-{shots}-shots",
            method="zerodfl",
            classes=20,
            context_length=4,
            images=20 * shots,
        )
        for shots in (1, 2, 4, 8, 16)
    ),
    "domains": tuple(
        Task(
            name=f"feddpt-{count}-domains",
            method="feddpt",
            classes=65,
            context_length=16,
            images=32,
            clients=count,
        )
        for count in (2, 4, 6)
    ),
}


@dataclass(slots=True, kw_only=True)
class Inputs:
    """What a step reads: names, labels, unit image features [B, D], pixels [B, 3, H, W].

    anchors: unit vectors [classes, D]. constants: prompts of others. start: initial values of the
    arrays that are tuned.
    """

    task: Task
    names: tuple[str, ...]
    labels: Tensor
    features: Tensor
    pixels: Tensor
    anchors: Tensor
    constants: dict[str, Tensor] = field(default_factory=dict)
    start: dict[str, Tensor] = field(default_factory=dict)

    @property
    def needed(self) -> tuple[str, ...]:
        """Names whose texts fednode encodes; for Fed-DPT the batch's classes (equation 9)."""
        most = self.task.images if self.task.method == "feddpt" else self.task.classes
        return self.names[:most]


def inputs(frozen: Backbone, task: Task) -> Inputs:
    """Draw the inputs of a step; equal for equal tasks."""
    draw = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(frozen.device)

    side = frozen.model.visual.image_size
    side = side[0] if isinstance(side, tuple) else side
    joint = frozen.text.encode(frozen.text.tokens(["x"])).shape[1]
    pixels = task.images if task.encoded or task.visual else 0
    made = Inputs(
        task=task,
        names=SAMPLE_NAMES[: task.classes],
        labels=(torch.arange(task.images) % task.classes).to(frozen.device),
        features=F.normalize(normal(task.images, joint), dim=-1),
        pixels=normal(pixels, 3, side, side),
        anchors=F.normalize(normal(task.classes, joint), dim=-1),
    )
    text, length, clients = frozen.text, task.context_length, task.clients
    if not task.visual:
        made.start = {"context": 0.02 * normal(length, text.width)}
    elif task.method == "feddpt":
        visual = 0.02 * normal(1, clients, frozen.vision.width)
        made.start = {"context": 0.02 * normal(length, text.width), "visual": visual}
        made.constants = {"context": 0.02 * normal(clients - 1, length, text.width)}
    else:
        shapes = {
            "text": (text.layers, length, text.width),
            "visual": (frozen.vision.layers, length, frozen.vision.width),
        }
        if task.method == "plan-a":
            made.start = {name: 0.02 * normal(*shape) for name, shape in shapes.items()}
            made.constants = {name: 0.02 * normal(*shape) for name, shape in shapes.items()}
        else:
            made.constants = {
                name: 0.02 * normal(clients, *shape) for name, shape in shapes.items()
            }
            for name, (layers, rows, width) in shapes.items():
                narrow = max(1, width // BOTTLENECK)
                for part in ("query", "value"):
                    made.start[f"{name}.{part}.down"] = 0.02 * normal(layers, width, narrow)
                    made.start[f"{name}.{part}.up"] = 0.02 * normal(layers, narrow, width)
                made.start[f"{name}.asks"] = 0.02 * normal(layers, rows, width)
    return made
