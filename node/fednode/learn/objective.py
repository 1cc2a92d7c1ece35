"""The meaning of a policy's prompts: their initial values, their loss, and their predictions.

A policy's folder holds its objective in `objective.py`, as the class `Objective`. The learner owns
data, optimizer and rounds; the objective owns the forward pass. An objective is stateless between
jobs: state that must live on leaves as carry and comes back with the next job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.core.types import EMPTY, Job, Tensors
from fednode.learn.settings import TuningSettings
from fednode.learn.texts import ClassTexts

Parameters = Mapping[str, Tensor]
"""Arrays by name, as float32 tensors on the model's device."""


class Leaves(dict[str, Tensor]):
    """Arrays by name, as float32 tensors, with the class names of their rows."""

    def __init__(self, arrays: Parameters, classes: tuple[str, ...] = ()) -> None:
        super().__init__(arrays)
        self.classes = classes


@dataclass(frozen=True, slots=True)
class Constant:
    """Numbers of each image that an objective needs beside its features, computed once and cached.

    They depend on the image and the frozen model alone, such as FedOTP's features of patches.

    Attributes:
        name: names everything else that the numbers depend on; a part of the cache's key
        shape: of one image's numbers
        of: returns them, [B, *shape] in float32, for images [B, 3, H, W] or their tokens
    """

    name: str
    shape: tuple[int, ...]
    of: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some images: features, or, if the objective's `looks` is true, tokens or pixels.

    Attributes:
        features: unit features [B, D]
        norms: [B], the lengths of the features before they were made unit; given with features
        tokens: [B, length, width], the tower's state before the first prompt (VisionTower.tokens)
        pixels: [B, 3, H, W], in place of tokens if the tokens are more numbers than the pixels
        labels: [B], indices of the class names in use; None if unknown
        index: [B], each image's place among all images of the job, the same in every epoch
        numbers, places: labels and index as Python numbers, which no step waits for a GPU to read
        constants: [B, ...], the numbers of the objective's `constant`, if it has one
    """

    features: Tensor | None = None
    pixels: Tensor | None = None
    labels: Tensor | None = None
    index: Tensor | None = None
    tokens: Tensor | None = None
    norms: Tensor | None = None
    constants: Tensor | None = None
    numbers: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    @property
    def seen(self) -> Tensor:
        """Return the features; an objective whose `looks` is false always has them."""
        assert self.features is not None, "this objective works on features"
        return self.features

    @property
    def raw(self) -> Tensor:
        """Return the features [B, D] as the image tower gives them, before they are made unit."""
        assert self.norms is not None, "this objective works on features that are not unit"
        return self.norms[:, None] * self.seen

    @property
    def known(self) -> Tensor:
        """Return the images' constants; requires an objective with a `constant`."""
        assert self.constants is not None, "this objective needs its constants of the images"
        return self.constants

    @property
    def looked(self) -> Tensor:
        """Return the tokens or pixels, for VisionTower.encode; requires an objective that looks."""
        looked = self.pixels if self.tokens is None else self.tokens
        assert looked is not None, "this objective looks at the images themselves"
        return looked

    @property
    def truth(self) -> Tensor:
        """Return the labels; training batches always have them."""
        assert self.labels is not None, "training images have labels"
        return self.labels


@dataclass(frozen=True, slots=True)
class Given:
    """One job as an objective sees it.

    prompts: the arrays that are trained, exchanged and private, with gradients. reference: the
    job's reference as tensors. carry: what the last job carried on, without the optimizer's state.
    """

    job: Job
    prompts: Parameters
    reference: Parameters
    carry: Parameters
    classes: tuple[str, ...]


class Tuning(Protocol):
    """One job in progress."""

    def loss(self, batch: Batch) -> Tensor:
        """Return the scalar loss of a batch."""
        ...

    def stepped(self) -> None:
        """React to an optimizer step: the prompts have changed."""
        ...

    def carry(self) -> Parameters:
        """Return the arrays for the next job, without optimizer state and private arrays."""
        ...


@runtime_checkable
class InTurns(Protocol):
    """A job in progress that has several losses for a batch, each of other arrays."""

    def losses(self, batch: Batch) -> Iterator[Tensor]:
        """Yield scalar losses; the optimizer takes a step for each before the next is computed."""
        ...


@runtime_checkable
class Partial(Protocol):
    """A job in progress in whose loss some arrays have a part only if the batch asks for them.

    Attributes:
        taken: for these arrays a truth value on the device, whether they had a part in the last
            loss. If not, their gradient is zero, and the optimizer must not move them
    """

    taken: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Computed:
    """The result of a job without gradients. loss: None if the job has none."""

    tensors: Tensors
    loss: float | None = None
    carry: Tensors = EMPTY


@runtime_checkable
class Computing(Protocol):
    """An objective whose jobs are computed from features in one pass, without gradients."""

    def compute(
        self,
        job: Job,
        features: Tensor,
        labels: Tensor,
        classes: tuple[str, ...],
        least: int,
        images: Sequence[bytes] = (),
    ) -> Computed:
        """Return the arrays for unit features [n, D] and labels [n] of the training images.

        The learner calls it in place of `begin`. labels index classes, the node's own. images:
        digests by which an image is known again. What is sent names no class of fewer than `least`
        images, and tells no difference that fewer images make.
        """
        ...


@runtime_checkable
class Answering(Protocol):
    """An objective with several classifiers, which can say which of them answers."""

    def answers(self, prompts: Parameters, classes: tuple[str, ...]) -> str:
        """Return a sentence on the classifier that answers for these classes."""
        ...


def said(objective: object, prompts: Parameters, classes: tuple[str, ...]) -> str:
    """Return a sentence on which of an objective's classifiers answers; "" if it has only one."""
    return objective.answers(prompts, classes) if isinstance(objective, Answering) else ""


Classifier = Callable[[Batch], Tensor]
"""Return the logits [B, classes] of a batch."""


class Objective(Protocol):
    """See the file's header. Labels index the class names that are given with them."""

    def __init__(self, backbone: Backbone, settings: TuningSettings, config: Any) -> None:
        """Take the frozen model, the tuning settings and the policy's own configuration."""
        ...

    @property
    def looks(self) -> bool:
        """Tell whether it needs tokens or pixels, because its prompts change the image tower."""
        ...

    @property
    def constant(self) -> Constant | None:
        """Return what it needs of each image beside features; None if features are enough.

        An objective that looks has none.
        """
        ...

    def initial(self, seed: int) -> Tensors:
        """Return the exchanged arrays that round 1 starts from, equal for equal seeds."""
        ...

    def private(self, seed: int) -> Tensors:
        """Return the initial values of arrays that are trained and never exchanged.

        seed: of the node's own job, so each node may begin with other values.
        """
        ...

    def begin(self, given: Given) -> Tuning:
        """Start a job."""
        ...

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return a function that classifies images with given prompts; called without gradients."""
        ...

    def zero_shot(self, features: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return logits [B, classes] of the hand-written prompt, without learned arrays."""
        ...


class Plain:
    """A tuning that consists of a loss alone."""

    def __init__(self, loss: Callable[[Batch], Tensor]) -> None:
        self._loss = loss

    def loss(self, batch: Batch) -> Tensor:
        """Return the scalar loss of a batch."""
        return self._loss(batch)

    def stepped(self) -> None:
        """Do nothing."""

    def carry(self) -> Parameters:
        """Return nothing."""
        return {}


class Written:
    """Base of most objectives: no pixels, no private arrays, zero-shot by hand-written texts."""

    looks = False
    constant: Constant | None = None

    def __init__(self, backbone: Backbone, settings: TuningSettings, config: Any = None) -> None:
        self.backbone = backbone
        if settings.context_length == "auto" and not backbone.text.fault:
            settings = settings.fitted(backbone.text.length_max)
        self.settings = settings.worded(backbone.template)
        self.config = config
        self.texts = ClassTexts(backbone)

    def private(self, seed: int) -> Tensors:
        """Return no arrays."""
        return EMPTY

    def zero_shot(self, features: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return s * cos with the text features of `template`, [B, classes]."""
        return self.scaled(features, self.written(classes))

    def written(self, classes: tuple[str, ...]) -> Tensor:
        """Return the unit features [classes, D] of `template`."""
        return self.texts.written(classes, self.settings.template)

    def scaled(self, features: Tensor, texts: Tensor) -> Tensor:
        """Return the model's logits [B, classes] of unit features: s * cos, and SigLIP's bias."""
        return self.backbone.biased(self.backbone.logit_scale * features @ texts.T)
