"""Fed-DPT's objective: domains' text features, weighted by an image's attention to their tokens.

    w_i = softmax_i(<q_cls, k_i> / tau_d)            (5)    in the image tower's last block
    f_T(x, c) = sum_i w_i(x) f_T^i(c)                (6)    f_T^i of domain i's text prompt
    L = -cos(f_V, f_T(x, y))                         (9)    equation 7 lacks the sign

Others' text prompts are constants within a step, and move between steps (equation 8): t <- alpha t
+ (1 - alpha) t_received. Their positions are carried from round to round.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.clip.placed import placed
from fednode.clip.vision import Seen
from fednode.core.types import Array, Tensors
from fednode.errors import ModelError
from fednode.learn import initial
from fednode.learn.objective import Batch, Classifier, Given, Parameters, Tuning, Written
from fednode.learn.settings import TuningSettings
from fednode.policies.feddpt.config import FedDPTConfig
from fednode.policies.feddpt.slots import TEXT, VISUAL, text_slots, visual_slots

MOVED = "moved/"
"""Prefix, in the carry, of others' arrays as the moving average left them."""


class Objective(Written):
    """Tune text prompts [m, text width] and visual tokens [vision width], one per domain."""

    config: FedDPTConfig

    def __init__(self, backbone: Backbone, settings: TuningSettings, config: Any = None) -> None:
        """Raise ModelError if the image tower has no class token whose query equation 5 needs."""
        super().__init__(backbone, settings, config)
        vision = backbone.vision
        if self.config.components == "full" and vision.promptable and not vision.asks:
            raise ModelError(
                f"{backbone.label} has no class token, whose attention weighs Fed-DPT's domains: "
                "set policy.components to text or visual, or choose a model such as ViT-B-16."
            )

    @property
    def looks(self) -> bool:  # type: ignore[override]
        """True unless only text is tuned."""
        return self.config.components != "text"

    def initial(self, seed: int) -> Tensors:
        """Return prompts drawn slot by slot in the order of the domains."""
        draw = initial.generator(seed)
        arrays: dict[str, Array] = {
            name: initial.context(self.backbone, self.settings, draw)
            for name in text_slots(self.config)
        }
        for name in visual_slots(self.config):
            width = self.backbone.vision.width
            arrays[name] = initial.normal(draw, (width,), self.settings.init_std)
        return Tensors(arrays)

    def begin(self, given: Given) -> Tuning:
        """Start a job with others' arrays as the last job left them."""
        return _Job(self, given)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s * cos(f_V, f_T(x, c))."""
        banks = self.banks(prompts, classes)

        def logits(batch: Batch) -> Tensor:
            features, weights = self.see(prompts, batch)
            cosines = self.cosines(features, weights, banks)
            return self.backbone.biased(self.backbone.logit_scale * cosines)

        return logits

    def banks(self, prompts: Parameters, classes: tuple[str, ...]) -> Tensor:
        """Return the unit text features [n, classes, D] of n text prompts, in the order of slots.

        Prompts without a gradient are encoded separately, which costs less.
        """
        slots = text_slots(self.config)
        if not slots:
            return self.written(classes)[None]
        tokens = self.texts.tokens(classes, self.settings.vectors)
        features: dict[str, Tensor] = {}
        for gradient in (True, False):
            names = [name for name in slots if prompts[name].requires_grad == gradient]
            if names:
                stack = torch.stack([prompts[name] for name in names])
                with torch.set_grad_enabled(gradient and torch.is_grad_enabled()):
                    encoded = self.backbone.text.encode(tokens, stack)
                features.update(zip(names, encoded, strict=True))
        return torch.stack([features[name] for name in slots])

    def see(self, prompts: Parameters, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return image features [B, D] and the domains' weights [B, n], or ones [B, 1]."""
        names = visual_slots(self.config)
        if not names:
            return batch.seen, torch.ones_like(batch.seen[:, :1])
        visual = torch.stack([prompts[name] for name in names])[None]
        seen = self.backbone.vision.encode(batch.looked, visual)
        if self.config.components != "full":
            return seen.features, torch.ones_like(seen.features[:, :1])
        return seen.features, self.weights(seen)

    def weights(self, seen: Seen) -> Tensor:
        """Return the weights [B, n] of equation 5, scaled as the setting `score` says."""
        query, keys = seen.query.float(), seen.keys.float()
        if self.config.score == "cosine":
            query = F.normalize(query.flatten(1), dim=1)[:, None]
            keys = F.normalize(keys.transpose(1, 2).flatten(2), dim=2)[:, None]
        scores = torch.einsum("bhd,bhnd->bn", query, keys.expand(len(query), -1, -1, -1))
        if self.config.score == "scaled":
            scores = scores / (query.shape[1] * query.shape[2] ** 0.5)
        return (scores / self.config.temperature).softmax(dim=1)

    def cosines(self, features: Tensor, weights: Tensor, banks: Tensor) -> Tensor:
        """Return cos(f_V, f_T(x, c)), [B, classes], with equation 6's sum as a unit vector."""
        mixed = torch.einsum("bn,ncd->bcd", weights, banks)
        return torch.einsum("bd,bcd->bc", features, F.normalize(mixed, dim=2))


class _Job:
    """One node's training in a round."""

    def __init__(self, objective: Objective, given: Given) -> None:
        self._objective, self._given = objective, given
        config = objective.config
        self._moving = {
            name
            for name in given.reference
            if (name.startswith(TEXT) and config.text == "ema")
            or (name.startswith(VISUAL) and config.visual == "split_ema")
        }
        self._others = {
            name: given.carry.get(MOVED + name, array).clone() if name in self._moving else array
            for name, array in given.reference.items()
        }

    def loss(self, batch: Batch) -> Tensor:
        objective, given = self._objective, self._given
        prompts = {**self._others, **given.prompts}
        features, weights = objective.see(prompts, batch)
        if objective.config.loss == "ce":
            banks = objective.banks(prompts, given.classes)
            cosines = objective.cosines(features, weights, banks)
            return F.cross_entropy(objective.backbone.logit_scale * cosines, batch.truth)
        # Equation 9 needs the true classes alone: texts of other classes need not be encoded.
        labels = batch.numbers or tuple(batch.truth.tolist())
        present = sorted(set(labels))
        place = placed(torch.tensor([present.index(one) for one in labels]), features.device)
        banks = objective.banks(prompts, tuple(given.classes[at] for at in present))
        mixed = torch.einsum("bn,nbd->bd", weights, banks[:, place])
        return -(features * F.normalize(mixed, dim=1)).sum(dim=1).mean()

    @torch.no_grad()
    def stepped(self) -> None:
        """Move others' arrays towards the received arrays (equation 8)."""
        share = 1.0 - self._objective.config.alpha
        for name in self._moving:
            self._others[name].lerp_(self._given.reference[name], share)

    def carry(self) -> Parameters:
        return {MOVED + name: self._others[name] for name in self._moving}
