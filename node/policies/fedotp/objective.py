"""FedOTP's objective: two prompts, matched with the patches of an image by optimal transport.

    logit_c = s sum_mn T_mn S_mn       S_mn = cos(patch m, text feature of prompt n and class c)

T is the plan of transport.py for this image and class. The gradient flows through S alone: T is
the minimum of a problem in S, so the gradient of that minimum is T (envelope theorem). 1 - <T, 1 -
S> of the paper differs from <T, S> by a constant, which a softmax does not see.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.core.types import Tensors
from fednode.learn import start
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
from fednode.policies.fedotp.config import FedOTPConfig
from fednode.policies.fedotp.transport import transport

GLOBAL: Final = "global"
LOCAL: Final = "local"


class Objective(Written):
    """Tune two prompts [m, width] on the cached features of patches; only "global" is exchanged."""

    config: FedOTPConfig

    def __init__(self, backbone: Backbone, settings: TuningSettings, config: Any = None) -> None:
        """Raise ModelError if the image tower has no features of patches."""
        super().__init__(backbone, settings, config)
        vision = backbone.vision
        self.constant = Constant("patches", vision.patches_shape, vision.patches)

    def initial(self, seed: int) -> Tensors:
        """Return the global prompt."""
        return Tensors({GLOBAL: start.context(self.backbone, self.settings, start.generator(seed))})

    def private(self, seed: int) -> Tensors:
        """Return the local prompt, which starts as the global one does, from its own draw."""
        return Tensors({LOCAL: start.context(self.backbone, self.settings, start.generator(seed))})

    def begin(self, given: Given) -> Tuning:
        """Return the cross-entropy over the node's classes."""

        def loss(batch: Batch) -> Tensor:
            texts = self._encode(given.prompts, given.classes)
            return F.cross_entropy(self._logits(batch.known, texts), batch.truth)

        return Plain(loss)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s <T, S> with both prompts; a node without a local one uses the global alone."""
        texts = self._encode(prompts, classes)
        return lambda batch: self._logits(batch.known, texts)

    def _encode(self, prompts: Parameters, classes: tuple[str, ...]) -> Tensor:
        """Return unit text features [N, classes, D] of the prompts at hand."""
        tokens = self.texts.tokens(classes, self.settings.context_length)
        contexts = torch.stack([prompts[name] for name in (GLOBAL, LOCAL) if name in prompts])
        return self.backbone.text.encode(tokens, contexts)

    def _logits(self, patches: Tensor, texts: Tensor) -> Tensor:
        """Return logits [B, classes] of patches [B, M, D] and texts [N, classes, D]."""
        similarity = torch.einsum("bmd,ncd->bcmn", patches, texts)
        config = self.config
        plan = transport(
            similarity.detach(), config.mass, config.epsilon, config.threshold, config.steps
        )
        return self.backbone.logit_scale * (plan * similarity).sum(dim=(2, 3))
