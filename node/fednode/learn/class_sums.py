"""Classifiers of one node's class sums, without any exchange: the same head, alone.

A job computes sums over the node's training images and chooses the ratio to the hand-written prompt
by leaving each image out. It takes no gradient step, so every round gives the same result.

    gda              the Gaussian classifier of node/fednode/learn/gaussian.py
    gda_zero_shot    Wang et al. (arXiv 2402.04087): GDA with their shrinkage, plus zero-shot logits
    class_means      cosines with class means (nearest class mean)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.core.types import Job, Tensors
from fednode.errors import ModelError
from fednode.learn import ratio
from fednode.learn.gaussian import Floats, Head, Prior, Sums, class_means
from fednode.learn.objective import (
    Batch,
    Classifier,
    Computed,
    Given,
    Leaves,
    Parameters,
    Tuning,
    Written,
)
from fednode.learn.settings import TuningSettings

HeadKind = Literal["gda", "gda_zero_shot", "class_means"]
ROWS: Final = "rows"
"""Name of the array [C, 1 + D]: the number of a class's images, and the sum of their features."""
MOMENT: Final = "moment"
"""Name of the array [D, D]: the sum of x x^T over all images."""
CHOICE: Final = "choice"
"""Name of the array [2]: the ratio and the temperature."""
WEIGHTS: Final = "weights"
"""Array [C, 1 + D] of an exported file: weights and bias of each known class, in place of sums."""
PERSONAL: Final = "personal_weights"
"""Array [C, 2 + D] beside it: 1 for the node's own classes, and their weights and bias if only own
classes are asked for."""
PRIORS: Final[Mapping[str, Prior]] = {
    "gda": Prior(),
    "gda_zero_shot": Prior(rho=None, kappa=0.0),
}


def rows_of(sums: Sums) -> Floats:
    """Return counts and sums as one array [C, 1 + D]."""
    return np.concatenate([sums.counts[:, None], sums.sums], axis=1)


def sums_of(rows: Any, classes: Sequence[str], moment: Any = None) -> Sums:
    """Return what `rows_of` packed, without the classes that have no images."""
    wide = np.asarray(rows, np.float64)
    seen = wide[:, 0] > 0.5
    names = tuple(name for name, has_images in zip(classes, seen, strict=True) if has_images)
    square = None if moment is None else np.asarray(moment, np.float64)
    return Sums(names, wide[seen, 0], wide[seen, 1:], square)


class SumsObjective(Written):
    """Base of objectives that compute class sums in place of training."""

    closed_form = True

    def initial(self, seed: int) -> Tensors:
        """Return the sums over no images."""
        return Tensors({ROWS: np.zeros((0, 1 + self.width))})

    def exported(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier | None:
        """Return the classifier of an exported file's weights; None if there are sums."""
        if WEIGHTS not in prompts:
            return None
        assert isinstance(prompts, Leaves), "weights name their classes"
        places = {name: at for at, name in enumerate(prompts.classes)}
        if not set(classes) <= set(places):
            return answering(lambda x: self.prompt(x, classes), self.width)
        here = [places[name] for name in classes]
        personal, found = wide(prompts[PERSONAL])[here], wide(prompts[WEIGHTS])[here]
        if personal[:, 0].all():
            found = personal[:, 1:]
        return answering(lambda x: x @ found[:, :-1].T + found[:, -1], self.width)

    @property
    def width(self) -> int:
        """Return D, the width of the features."""
        return int(self.written(("thing",)).shape[1])

    def begin(self, given: Given) -> Tuning:
        """Refuse: nothing is trained."""
        raise ModelError("class sums are computed in one pass; they have no loss to train.")

    def template(self, classes: Sequence[str]) -> Floats:
        """Return the unit text features [C, D] of the hand-written prompt."""
        return wide(self.written(tuple(classes)))

    def prompt(self, x: Floats, classes: Sequence[str]) -> Floats:
        """Return the logits [n, C] of the hand-written prompt."""
        return float(self.backbone.logit_scale) * x @ self.template(classes).T


class AloneObjective(SumsObjective):
    """The classifier of one node's own images; `head` names it. See the file's header."""

    def __init__(
        self, head: HeadKind, backbone: Backbone, settings: TuningSettings, config: Any = None
    ) -> None:
        super().__init__(backbone, settings, config)
        self._head = head

    def fit(
        self,
        job: Job,
        features: Tensor,
        labels: Tensor,
        classes: tuple[str, ...],
        least: int,
        images: Sequence[bytes] = (),
    ) -> Computed:
        """Return the sums of all images and the ratio that their left-out losses choose."""
        x, y = wide(features), labels.cpu().numpy()
        sums = Sums.of(x, y, classes)
        arrays = {ROWS: rows_of(sums), MOMENT: x.T @ x}
        names = [classes[at] for at in y]
        choice, loss = self._choose(sums, x, names)
        return Computed(Tensors({**arrays, CHOICE: np.array(choice)}, sums.classes), loss)

    def _choose(self, sums: Sums, x: Floats, names: Sequence[str]) -> tuple[ratio.Choice, float]:
        if self._head == "class_means":
            return ratio.Choice(0.0, 1.0), 0.0
        gauss = Head(sums, self.template, PRIORS[self._head]).left_out(x, names, sums.classes)
        labels = np.array([sums.classes.index(name) for name in names])
        table = ratio.losses(gauss, self.prompt(x, sums.classes), labels)
        return ratio.best(table), float(table.min())

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return a function that gives the head's logits [B, classes].

        If no class of the list has images, the hand-written prompt answers. GDA of the paper has no
        means for unseen classes, so there the prompt answers if a single class has no images.
        """
        if (exported := self.exported(prompts, classes)) is not None:
            return exported
        assert isinstance(prompts, Leaves), "class sums name their classes"
        held = {name: wide(prompt) for name, prompt in prompts.items()}
        sums = sums_of(held[ROWS], prompts.classes, held.get(MOMENT))
        seen = sum(name in sums.classes for name in classes)
        scale = float(self.backbone.logit_scale)
        if not seen or (self._head == "gda_zero_shot" and seen < len(classes)):
            return answering(lambda x: self.prompt(x, classes), self.width)
        if self._head == "class_means":
            return answering(
                lambda x: scale * class_means(sums, self.template, x, classes), self.width
            )
        head, choice = Head(sums, self.template, PRIORS[self._head]), ratio.Choice(*held[CHOICE])
        return answering(
            lambda x: choice.logits(head.gauss(x, classes), self.prompt(x, classes)), self.width
        )


def wide(tensor: Tensor) -> Floats:
    """Return a tensor as a float64 array on the CPU."""
    array: Floats = tensor.detach().double().cpu().numpy()
    return array


def answering(logits: Callable[[Floats], Floats], width: int) -> Classifier:
    """Return a classifier of batches from a function of unit features [n, D] that is affine.

    Its weights are taken once, so a batch costs one product, and gradients pass through it.
    """
    bias = logits(np.zeros((1, width)))
    weight, offset = torch.from_numpy(logits(np.eye(width)) - bias), torch.from_numpy(bias)

    def classify(batch: Batch) -> Tensor:
        seen = batch.image_features
        return (seen.cpu().double() @ weight + offset).float().to(seen.device)

    return classify
