"""One prompt of learned context vectors, shared by all classes (CoOp, Zhou et al. 2022).

ZeroDFL and its local control tune this: softmax over s * cos(f(x), g(P, c)) with CLIP's own logit
scale s, cross-entropy over the node's classes (METHODS section 1), and KgCoOp's pull towards the
hand-written prompt where knowledge_weight is not 0.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from node.clip.backbone import Backbone
from node.clip.text import ClassTokens
from node.core.types import Tensors
from node.errors import ConfigError
from node.learn.objective import Parameters
from node.learn.settings import TuningSettings

NAME: Final = "context"
"""Name of the exchanged array, [context length, text width]."""


class ContextObjective:
    """Learned context vectors between SOS and the class name."""

    def __init__(self, backbone: Backbone, settings: TuningSettings, config: Any = None) -> None:
        self._backbone = backbone
        self._settings = settings
        # Token ids and hand-written features of a class list never change; there are few lists.
        self._tokens: dict[tuple[str, ...], ClassTokens] = {}
        self._written: dict[tuple[str, ...], Tensor] = {}

    def initial(self, seed: int) -> Tensors:
        """Return the embeddings of init_words, or a normal start of deviation init_std."""
        text, settings = self._backbone.text, self._settings
        shape = (settings.context_length, text.width)
        if settings.init_words is None:
            drawn = np.random.default_rng(seed).standard_normal(shape)
            return Tensors({NAME: settings.init_std * drawn})
        words = text.embed_words(settings.init_words).float().cpu().numpy()
        if words.shape != shape:
            raise ConfigError(
                f"tuning.init_words {settings.init_words!r} is {len(words)} tokens and "
                f"tuning.context_length is {shape[0]}; make them equal."
            )
        return Tensors({NAME: words})

    def loss(
        self,
        prompts: Parameters,
        reference: Parameters,
        features: Tensor,
        labels: Tensor,
        classes: tuple[str, ...],
    ) -> Tensor:
        """Return mean cross-entropy, plus w * mean(1 - cos(learned, hand-written)) (KgCoOp)."""
        learned = self._encode(prompts, classes)
        loss = F.cross_entropy(self._scaled(features, learned), labels)
        weight = self._settings.knowledge_weight
        if weight:
            written = self._hand_written(classes)
            loss = loss + weight * (1.0 - (learned * written).sum(dim=1)).mean()
        return loss

    def logits(
        self, prompts: Parameters, reference: Parameters, features: Tensor, classes: tuple[str, ...]
    ) -> Tensor:
        """Return s * cos of image features [B, D] with each class's learned text, [B, classes]."""
        return self._scaled(features, self._encode(prompts, classes))

    def zero_shot(self, features: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return s * cos with the text features of `template`, [B, classes]."""
        return self._scaled(features, self._hand_written(classes))

    def _encode(self, prompts: Parameters, classes: tuple[str, ...]) -> Tensor:
        text = self._backbone.text
        if classes not in self._tokens:
            self._tokens[classes] = text.tokens(classes, self._settings.context_length)
        return text.encode(self._tokens[classes], prompts[NAME])

    @torch.no_grad()
    def _hand_written(self, classes: tuple[str, ...]) -> Tensor:
        if classes not in self._written:
            text = self._backbone.text
            self._written[classes] = text.encode(text.texts(classes, self._settings.template))
        return self._written[classes]

    def _scaled(self, features: Tensor, texts: Tensor) -> Tensor:
        return self._backbone.logit_scale * features @ texts.T
