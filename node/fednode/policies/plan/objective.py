"""PLAN's two stages in torch: prompts pulled towards the global ones, and aggregators of them.

Stage "prompts": L = CE(p) + alpha KL(p_global || p) (equation 10); the teacher's distributions are
constants of a round and computed once for each image. Stage "aggregators": CE with the global
prompts that the aggregators make of all local prompts (equation 15).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.core.types import Array, Tensors
from fednode.learn import initial
from fednode.learn.objective import Batch, Classifier, Given, Parameters, Plain, Tuning, Written
from fednode.policies.plan import aggregator
from fednode.policies.plan.config import PlanConfig
from fednode.policies.plan.exchange import PROMPTS

TEXT, VISUAL = "text", "visual"


class Objective(Written):
    """Tune deep prompts of both towers: text [L, m, width], visual [L, m, width].

    L is the tower's number of blocks, or `depth` if that is smaller and not 0.
    """

    config: PlanConfig
    looks = True

    def initial(self, seed: int) -> Tensors:
        """Return normal prompts, and aggregators with torch's initial layers and normal queries."""
        initial.refuse_words(self.settings, "plan")
        draw, std = initial.generator(seed), self.settings.init_std
        text, vision = self.backbone.text, self.backbone.vision
        length, most = self.settings.vectors, self.config.depth
        prompts = {
            name: (min(tower.layers, most or tower.layers), length, tower.width)
            for name, tower in ((TEXT, text), (VISUAL, vision))
        }
        arrays: dict[str, Array] = {
            name: initial.normal(draw, shape, std) for name, shape in prompts.items()
        }
        for name in self.config.aggregated:
            shapes = aggregator.shapes(name, prompts[name], self.config.reduction, self.config.tied)
            for key, shape in shapes.items():
                inputs = shapes[key.removesuffix("_bias")][1]
                still = self.config.residual and ".value.up" in key
                if key.endswith(".asks"):
                    arrays[key] = initial.normal(draw, shape, std)
                else:
                    arrays[key] = initial.uniform(draw, shape, inputs) * (0.0 if still else 1.0)
        return Tensors(arrays)

    def begin(self, given: Given) -> Tuning:
        """Start the job's stage."""
        if given.job.stage == PROMPTS:
            return _Local(self, given)

        def loss(batch: Batch) -> Tensor:
            prompts = self.merged(given)
            return F.cross_entropy(self.logits(prompts, batch, given.classes), batch.truth)

        return Plain(loss)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s * cos of prompted images with prompted texts."""
        texts = self._texts(prompts, classes)
        return lambda batch: self.scaled(self._see(prompts, batch), texts)

    def logits(self, prompts: Parameters, batch: Batch, classes: tuple[str, ...]) -> Tensor:
        """Return s * cos, with gradients to the prompts of both towers."""
        seen = self._see(prompts, batch)
        return self.scaled(seen, self._texts(prompts, classes))

    def merged(self, given: Given) -> dict[str, Tensor]:
        """Return the global prompts that the aggregators in training make of the local prompts."""
        prompts: dict[str, Tensor] = {}
        for name in (TEXT, VISUAL):
            keys = sorted(key for key in given.reference if key.endswith(f"/{name}"))
            local = torch.stack([given.reference[key] for key in keys])
            if name in self.config.aggregated:
                prompts[name] = aggregate(given.prompts, name, local, self.config.residual)
            else:
                prompts[name] = local.mean(dim=0)
        return prompts

    def _texts(self, prompts: Parameters, classes: tuple[str, ...]) -> Tensor:
        tokens = self.texts.tokens(classes, self.settings.vectors, (self.config.words,))
        first, deeper = prompts[TEXT][0], prompts[TEXT][1:]
        return self.backbone.text.encode(tokens, first, deeper if len(deeper) else None)

    def _see(self, prompts: Parameters, batch: Batch) -> Tensor:
        return self.backbone.vision.encode(batch.looked, prompts[VISUAL]).features


class _Local:
    """Stage "prompts" of one round."""

    def __init__(self, objective: Objective, given: Given) -> None:
        self._objective, self._given = objective, given
        self._taught: dict[int, Tensor] = {}
        zero_shot = objective.config.first_teacher == "zero_shot"
        self._taught_at_all = bool(objective.config.kl) and (bool(given.reference) or zero_shot)

    def loss(self, batch: Batch) -> Tensor:
        given, config = self._given, self._objective.config
        logits = self._objective.logits(given.prompts, batch, given.classes)
        loss = F.cross_entropy(logits, batch.truth)
        if not self._taught_at_all:
            return loss
        taught = self._teach(batch)
        drift = F.kl_div(logits.log_softmax(dim=1), taught, reduction="batchmean", log_target=True)
        return loss + config.kl * drift

    @torch.no_grad()
    def _teach(self, batch: Batch) -> Tensor:
        """Return log p_global [B, classes] of a batch; the result of each image is kept."""
        assert batch.index is not None, "training images have places"
        places = batch.places or tuple(batch.index.tolist())
        if any(place not in self._taught for place in places):
            objective, given = self._objective, self._given
            if given.reference:
                logits = objective.logits(given.reference, batch, given.classes)
            else:
                plain = objective.backbone.vision.encode(batch.looked).features
                logits = objective.zero_shot(plain, given.classes)
            self._taught.update(zip(places, logits.log_softmax(dim=1), strict=True))
        return torch.stack([self._taught[place] for place in places])

    def stepped(self) -> None:
        """Do nothing: the teacher is constant within a round."""

    def carry(self) -> Parameters:
        return {}


def aggregate(weights: Parameters, name: str, local: Tensor, residual: bool) -> Tensor:
    """Return global prompts [L, m, width] of local ones [K, L, m, width] (equations 12, 13)."""
    key = aggregator.PREFIX + name

    def bottleneck(part: str) -> Tensor:
        down, up = weights[f"{key}.{part}.down"], weights[f"{key}.{part}.up"]
        hidden = F.gelu(local @ down + weights[f"{key}.{part}.down_bias"][:, None])
        return hidden @ up + weights[f"{key}.{part}.up_bias"][:, None]

    scores = (weights[f"{key}.asks"] * bottleneck("query")).sum(dim=(2, 3))
    values = bottleneck("value")
    if residual:
        values = values + local
    return (scores.softmax(dim=0)[:, :, None, None] * values).sum(dim=0)
