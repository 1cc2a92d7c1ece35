"""One prompt of learned context vectors, shared by all classes (CoOp, Zhou et al. 2022).

ZeroDFL, `local` and PromptFL tune this prompt: softmax over s * cos(f(x), g(P, c)) with CLIP's own
logit scale s, and cross-entropy over the node's classes (METHODS section 1). If knowledge_weight is
not 0, KgCoOp's distance to the hand-written prompt is added.
"""

from __future__ import annotations

from typing import Final

import torch.nn.functional as F
from torch import Tensor

from fednode.core.types import Tensors
from fednode.learn import initial
from fednode.learn.objective import Batch, Classifier, Given, Parameters, Plain, Tuning, Written

NAME: Final = "context"
"""Name of the exchanged array, [context length, text width]."""


class ContextObjective(Written):
    """Learned context vectors between SOS and the class name."""

    def initial(self, seed: int) -> Tensors:
        """Return the embeddings of init_words, or a normal draw of deviation init_std."""
        return Tensors(
            {NAME: initial.context(self.backbone, self.settings, initial.generator(seed))}
        )

    def begin(self, given: Given) -> Tuning:
        """Return mean cross-entropy, plus w * mean(1 - cos(learned, hand-written)) (KgCoOp)."""
        weight = self.settings.knowledge_weight

        def loss(batch: Batch) -> Tensor:
            learned = self._encode(given.prompts, given.classes)
            total = F.cross_entropy(self.scaled(batch.seen, learned), batch.truth)
            if weight:
                written = self.written(given.classes)
                total = total + weight * (1.0 - (learned * written).sum(dim=1)).mean()
            return total

        return Plain(loss)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s * cos of image features with each class's learned text features."""
        learned = self._encode(prompts, classes)
        return lambda batch: self.scaled(batch.seen, learned)

    def _encode(self, prompts: Parameters, classes: tuple[str, ...]) -> Tensor:
        tokens = self.texts.tokens(classes, self.settings.vectors)
        return self.backbone.text.encode(tokens, prompts[NAME])
