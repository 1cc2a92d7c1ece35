"""TRIP's objective: an image's prompt is a mixture of shared prompts, taught by zero-shot CLIP.

    P(x) = sum_e w_e(x) P_e            w by routing.py: constants of an image, without parameters
    L = CE(p, y) + alpha H(p_0, p)     p = softmax(s cos(f(x), g(P(x), c)))

p_0 is zero-shot CLIP's distribution. Every image has a prompt of its own, so a batch takes images
times classes texts, in training and in prediction.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import ENSEMBLE, Backbone
from fednode.core.types import Tensors
from fednode.errors import ConfigError
from fednode.learn import initial
from fednode.learn.objective import (
    Batch,
    Classifier,
    Constant,
    Given,
    Parameters,
    Plain,
    Tuning,
    Written,
)
from fednode.learn.settings import TuningSettings
from fednode.policies.trip import routing
from fednode.policies.trip.config import TRIPConfig

EXPERTS: Final = "experts"
TRAIN, TEST = 0, 1
"""Places of the two capacities' weights among an image's constants."""
CAPACITIES: Final = (1.0, 2.0)
"""Most tokens of a cluster in training and where images are classified, as multiples of an equal
share. Tokens beyond it do not count."""
KEYS: Final = 0
"""Seed of the fixed keys by which clusters take prompts; all nodes need the same keys."""


class Objective(Written):
    """Tune E prompts [E, m, width] on cached image features and routing weights."""

    config: TRIPConfig

    def __init__(self, backbone: Backbone, settings: TuningSettings, config: Any = None) -> None:
        """Raise ModelError if the image tower is no ViT, ConfigError if it has too few tokens."""
        super().__init__(backbone, settings, config)
        vision, most = backbone.vision, self.config.experts
        if vision.length < most:
            raise ConfigError(
                f"policy.experts is {most}, and the model has {vision.length} tokens an image: "
                "choose at most as many experts."
            )
        known = routing.keys(KEYS, most, vision.width)

        def of(images: Tensor) -> Tensor:
            states = vision.states(images).float().cpu().numpy()
            return torch.from_numpy(routing.routed(states, known, CAPACITIES))

        name = f"trip {most} {KEYS} {CAPACITIES[TRAIN]:g} {CAPACITIES[TEST]:g}"
        self.constant = Constant(name, (len(CAPACITIES), most), of)
        self._taught: dict[tuple[str, ...], Tensor] = {}

    def initial(self, seed: int) -> Tensors:
        """Return E prompts, each a draw of its own, around init_words if they are set."""
        draw, settings = initial.generator(seed), self.settings
        shape = (self.config.experts, settings.vectors, self.backbone.text.width)
        experts = initial.normal(draw, shape, settings.init_std)
        if settings.init_words is not None:
            experts = experts + initial.words(self.backbone, settings.init_words, shape[1:])
        return Tensors({EXPERTS: experts})

    def begin(self, given: Given) -> Tuning:
        """Return the cross-entropy with the labels, plus alpha times that with zero-shot CLIP."""
        teach = self.config.teach

        def loss(batch: Batch) -> Tensor:
            logits = self._logits(given.prompts, batch, given.classes, TRAIN)
            total = F.cross_entropy(logits, batch.truth)
            if not teach:
                return total
            written = self.scaled(batch.seen, self._teacher(given.classes)).softmax(dim=1)
            return total + teach * F.cross_entropy(logits, written)

        return Plain(loss)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s * cos with each image's own mixture of the prompts."""
        return lambda batch: self._logits(prompts, batch, classes, TEST)

    def _logits(
        self, prompts: Parameters, batch: Batch, classes: tuple[str, ...], place: int
    ) -> Tensor:
        tokens = self.texts.tokens(classes, self.settings.vectors)
        contexts = torch.einsum("be,emw->bmw", batch.known[:, place], prompts[EXPERTS])
        texts = self.backbone.text.encode(tokens, contexts)
        cosines = torch.einsum("bd,bcd->bc", batch.seen, texts)
        return self.backbone.biased(self.backbone.logit_scale * cosines)

    @torch.no_grad()
    def _teacher(self, classes: tuple[str, ...]) -> Tensor:
        """Return unit text features [classes, D] of `teacher`; the last list of names is kept."""
        if self.config.teacher == "template":
            return self.written(classes)
        if classes not in self._taught:
            text = self.backbone.text
            each = [text.encode(text.texts(classes, template)) for template in ENSEMBLE]
            self._taught = {classes: F.normalize(torch.stack(each).mean(dim=0), dim=1)}
        return self._taught[classes]
