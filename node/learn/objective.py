"""What a policy's prompts mean: how they start, what they lose on a batch, what they predict.

A policy's folder holds its objective in `objective.py`, as the class `Objective`. The learner owns
data, optimizer and rounds; the objective owns the forward pass. It is stateless between jobs: what
must live on goes out as carry and comes back with the next job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from node.clip.backbone import Backbone
from node.core.types import EMPTY, Job, Tensors
from node.learn.settings import TuningSettings
from node.learn.texts import ClassTexts

Parameters = Mapping[str, Tensor]
"""Arrays as float32 tensors on the model's device, by name."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some images: unit features [B, D]; for an objective that looks, tokens or pixels.

    tokens: [B, length, width], what stands before the first prompt (VisionTower.tokens). pixels:
    [B, 3, H, W], where the tokens are more numbers than the pixels.
    labels: [B], indices of the class names in use; None where nobody knows. index: [B], each
    image's place among all images of the job, the same in every epoch.
    """

    features: Tensor | None = None
    pixels: Tensor | None = None
    labels: Tensor | None = None
    index: Tensor | None = None
    tokens: Tensor | None = None

    @property
    def seen(self) -> Tensor:
        """Return the features; they are there unless the objective looks at pixels."""
        assert self.features is not None, "this objective works on features"
        return self.features

    @property
    def looked(self) -> Tensor:
        """Return tokens or pixels for VisionTower.encode; they are there where it looks."""
        looked = self.pixels if self.tokens is None else self.tokens
        assert looked is not None, "this objective looks at the images themselves"
        return looked

    @property
    def truth(self) -> Tensor:
        """Return the labels; they are there in training."""
        assert self.labels is not None, "training images have labels"
        return self.labels


@dataclass(frozen=True, slots=True)
class Given:
    """One job as an objective sees it.

    prompts: what is trained, exchanged and private arrays together, with gradients. reference: the
    job's own as tensors. carry: what the last job carried on beside the optimizer's state.
    """

    job: Job
    prompts: Parameters
    reference: Parameters
    carry: Parameters
    classes: tuple[str, ...]


class Tuning(Protocol):
    """One job under way."""

    def loss(self, batch: Batch) -> Tensor:
        """Return the scalar loss of a batch."""
        ...

    def stepped(self) -> None:
        """Take note of an optimizer step: prompts have moved."""
        ...

    def carry(self) -> Parameters:
        """Return what the next job is to be given, beside optimizer state and private arrays."""
        ...


Classifier = Callable[[Batch], Tensor]
"""Logits [B, classes] of a batch."""


class Objective(Protocol):
    """See the file's header. Labels index the class names given with them."""

    def __init__(self, backbone: Backbone, settings: TuningSettings, config: Any) -> None:
        """Take the frozen model, the tuning settings and the policy's own configuration."""
        ...

    @property
    def looks(self) -> bool:
        """Tell whether it needs pixels: its prompts change what the image tower sees."""
        ...

    def initial(self, seed: int) -> Tensors:
        """Return the exchanged arrays that round 1 starts from, equal for equal seeds."""
        ...

    def private(self) -> Tensors:
        """Return arrays that are trained and never exchanged, as a node's first job has them."""
        ...

    def begin(self, given: Given) -> Tuning:
        """Start on a job."""
        ...

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return what names images with some prompts; called without gradients."""
        ...

    def zero_shot(self, features: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return logits [B, classes] of the hand-written prompt, nothing learned."""
        ...


class Plain:
    """A tuning that is a loss and nothing else."""

    def __init__(self, loss: Callable[[Batch], Tensor]) -> None:
        self._loss = loss

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss."""
        return self._loss(batch)

    def stepped(self) -> None:
        """Nothing moves with the prompts."""

    def carry(self) -> Parameters:
        """Nothing lives on."""
        return {}


class Written:
    """What most objectives have in common: no pixels, nothing private, and hand-written texts."""

    looks = False

    def __init__(self, backbone: Backbone, settings: TuningSettings, config: Any = None) -> None:
        self.backbone = backbone
        self.settings = settings
        self.config = config
        self.texts = ClassTexts(backbone)

    def private(self) -> Tensors:
        """Return nothing."""
        return EMPTY

    def zero_shot(self, features: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return s * cos with the text features of `template`, [B, classes]."""
        return self.scaled(features, self.written(classes))

    def written(self, classes: tuple[str, ...]) -> Tensor:
        """Return the unit features [classes, D] of `template`."""
        return self.texts.written(classes, self.settings.template)

    def scaled(self, features: Tensor, texts: Tensor) -> Tensor:
        """Return CLIP's logits s * cos, [B, classes], of unit features."""
        return self.backbone.logit_scale * features @ texts.T
