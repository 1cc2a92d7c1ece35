"""FedOTP's objective: two prompts, matched with the patches of an image by optimal transport.

    logit_c = s <T, S>       S [M, N] = cos(patch m, text feature of prompt n and class c)

T is the plan of partial transport with entropy, for a = 1 / M and b = mass / N:

    T = argmin <T, 1 - S> + epsilon sum T (log T - 1)    where T 1 <= a, T^T 1 = b

by Sinkhorn's scaling (Chizat et al., Mathematics of Computation 2018; FedOTP's code):

    K = exp(-(1 - S) / epsilon);  u <- min(1, a / K v);  v <- b / K^T u;  T = diag(u) K diag(v)

With mass 1 both marginals are fixed and u <- a / K v, the balanced Sinkhorn (`OT=Sinkhorn` in
FedOTP's code): the bound u <= 1 has the same limit, but slows the steps down so much that rows are
up to 27 % off after 100 of them.

u and v are kept as logarithms: with a small epsilon, K would be 0 in float32. The gradient flows
through S alone: T is the gradient of the minimum (envelope theorem). 1 - <T, 1 - S> of the paper
differs from <T, S> by a constant, which a softmax does not see.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.core.types import Tensors
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
from fednode.policies.fedotp.config import FedOTPConfig

GLOBAL: Final = "global"
LOCAL: Final = "local"
THRESHOLD: Final = 1e-3
"""A plan is done when a step changes the logarithms of its columns' scales by less than this, on
average; the released code stops there."""
STEPS: Final = 100
"""Most steps for a plan, as in the released code."""


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
        return Tensors(
            {GLOBAL: initial.context(self.backbone, self.settings, initial.generator(seed))}
        )

    def private(self, seed: int) -> Tensors:
        """Return the local prompt, which starts as the global one does, from its own draw."""
        return Tensors(
            {LOCAL: initial.context(self.backbone, self.settings, initial.generator(seed))}
        )

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
        tokens = self.texts.tokens(classes, self.settings.vectors)
        contexts = torch.stack([prompts[name] for name in (GLOBAL, LOCAL) if name in prompts])
        return self.backbone.text.encode(tokens, contexts)

    def _logits(self, patches: Tensor, texts: Tensor) -> Tensor:
        """Return logits [B, classes] of patches [B, M, D] and texts [N, classes, D]."""
        similarity = torch.einsum("bmd,ncd->bcmn", patches, texts)
        plan = transport(
            similarity.detach(), self.config.mass, self.config.epsilon, THRESHOLD, STEPS
        )
        matched = (plan * similarity).sum(dim=(2, 3))
        return self.backbone.biased(self.backbone.logit_scale * matched)


@torch.no_grad()
def transport(
    similarity: Tensor, mass: float, epsilon: float, threshold: float, steps: int
) -> Tensor:
    """Return the plans [..., M, N] of similarities [..., M, N]; a plan's numbers add up to `mass`.

    A plan stops when log v has changed by less than `threshold` in its mean, or after `steps`. Each
    plan stops by itself, so the plan of an image does not depend on the rest of its batch.
    """
    patches, prompts = similarity.shape[-2:]
    kernel = (similarity - 1.0) / epsilon
    row, column = -math.log(patches), math.log(mass / prompts)
    v = kernel.new_zeros((*kernel.shape[:-2], prompts))
    u = kernel.new_zeros(kernel.shape[:-1])
    going = torch.ones(kernel.shape[:-2], dtype=torch.bool, device=kernel.device)
    for _ in range(steps):
        fresh_u = row - (kernel + v[..., None, :]).logsumexp(dim=-1)
        if mass < 1.0:
            fresh_u = fresh_u.clamp(max=0.0)
        fresh_v = column - (kernel + fresh_u[..., None]).logsumexp(dim=-2)
        moved = (fresh_v - v).abs().mean(dim=-1)
        u = torch.where(going[..., None], fresh_u, u)
        v = torch.where(going[..., None], fresh_v, v)
        going = going & (moved >= threshold)
        if kernel.device.type == "cpu" and not going.any():  # a GPU would wait for the answer
            break
    return (u[..., None] + kernel + v[..., None, :]).exp()
