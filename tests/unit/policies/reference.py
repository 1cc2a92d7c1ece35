"""Losses of the papers by open_clip's own modules: every text at full length, losses as written.

Nothing here is fednode's but the names of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.model import FrozenClip
from tests.unit.policies.tiny import CLASSES, LABELS, features, pixels

Arrays = Mapping[str, Tensor]
LENGTH: Final = 3
DOMAIN_TEMPERATURE: Final = 0.1
"""Fed-DPT's tau_d, equation 5."""


class Plain:
    """open_clip's modules, called as the papers' code calls them."""

    def __init__(self, frozen: FrozenClip, template: str = "{}.") -> None:
        model: Any = frozen.model
        self.scale = frozen.logit_scale
        self._visual, self._text = model.visual, getattr(model, "text", model)
        held = " ".join(["X"] * LENGTH)
        texts = [f"{held} {template.format(name)}" for name in CLASSES]
        self._ids = frozen.tokenizer(texts, frozen.text.length_max)

    def texts(self, context: Tensor, deep: Tensor | None = None) -> Tensor:
        """Return unit features [classes, D] for [m, width]."""
        tower, ids = self._text, self._ids
        embedded = tower.token_embedding(ids)
        shared = context.expand(len(ids), -1, -1)
        x = torch.cat([embedded[:, :1], shared, embedded[:, 1 + LENGTH :]], dim=1)
        x = x + tower.positional_embedding
        for number, block in enumerate(tower.transformer.resblocks):
            if deep is not None and 0 < number <= len(deep):
                fresh = deep[number - 1].expand(len(ids), -1, -1)
                x = torch.cat([x[:, :1], fresh, x[:, 1 + LENGTH :]], dim=1)
            x = block(x, attn_mask=tower.attn_mask)
        x = tower.ln_final(x)[torch.arange(len(x)), ids.argmax(dim=-1)]
        return F.normalize(x @ tower.text_projection, dim=-1)

    def images(self, prompts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return unit features, and the last block's class-token query and prompt keys."""
        tower, count = self._visual, prompts.shape[1]
        x = tower.conv1(pixels()).flatten(2).transpose(1, 2)
        first = tower.class_embedding.expand(len(x), 1, -1)
        x = torch.cat([first, x], dim=1) + tower.positional_embedding
        x = tower.ln_pre(torch.cat([x, prompts[0].expand(len(x), -1, -1)], dim=1))
        query = keys = x
        for number, block in enumerate(tower.transformer.resblocks):
            if 0 < number < len(prompts):
                fresh = prompts[number].expand(len(x), -1, -1)
                x = torch.cat([x[:, :-count], fresh], dim=1)
            if number + 1 == len(tower.transformer.resblocks):
                query, keys = _looks(block, x, count)
            x = block(x)
        raw = tower.ln_post(x[:, 0]) @ tower.proj
        return F.normalize(raw, dim=-1), query, keys

    def deep(self, prompts: Arrays) -> Tensor:
        """Return PLAN's logits, with prompts in the blocks of both towers."""
        texts = self.texts(prompts["text"][0], prompts["text"][1:])
        return self.scale * self.images(prompts["visual"])[0] @ texts.T


def _looks(block: Any, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    attention, width = block.attn, x.shape[2]
    normed = block.ln_1(torch.cat([x[:, :1], x[:, -count:]], dim=1))
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    both = F.linear(normed, weight[: 2 * width], bias[: 2 * width])
    q, k = both.view(len(x), 1 + count, 2, attention.num_heads, -1).transpose(1, 3).unbind(2)
    return q[:, :, 0], k[:, :, 1:]


def zerodfl(plain: Plain, own: Arrays, others: Arrays) -> Tensor:
    return F.cross_entropy(plain.scale * features() @ plain.texts(own["context"]).T, LABELS)


def feddpt(plain: Plain, own: Arrays, others: Arrays) -> Tensor:
    """Text features of the true class, weighted by domain (equations 5, 6, 9)."""
    seen, query, keys = plain.images(torch.stack([own["visual.x"], own["visual.y"]])[None])
    with torch.no_grad():
        theirs = plain.texts(others["text.y"])
    looks = torch.einsum("bhd,bhnd->bhn", query, keys).mean(dim=1)
    weights = (looks * query.shape[-1] ** -0.5 / DOMAIN_TEMPERATURE).softmax(dim=1)
    banks = torch.stack([plain.texts(own["text.x"]), theirs])[:, LABELS]
    mixed = F.normalize(torch.einsum("bn,nbd->bd", weights, banks), dim=1)
    return -(seen * mixed).sum(dim=1).mean()


def plan_prompts(plain: Plain, own: Arrays, others: Arrays) -> Tensor:
    """Equation 10; others: the global prompts."""
    student = plain.deep(own).log_softmax(dim=1)
    with torch.no_grad():
        taught = plain.deep(others).log_softmax(dim=1)
    drift = F.kl_div(student, taught, reduction="batchmean", log_target=True)
    return F.nll_loss(student, LABELS) + drift


def plan_aggregators(plain: Plain, own: Arrays, others: Arrays) -> Tensor:
    """Equations 12, 13 and 15; others: the local prompts of all nodes."""

    def narrow(name: str, part: str, local: Tensor) -> Tensor:
        down, up = (own[f"aggregator.{name}.{part}.{end}"] for end in ("down", "up"))
        first, second = (own[f"aggregator.{name}.{part}.{end}_bias"] for end in ("down", "up"))
        hidden = F.gelu(torch.einsum("klmd,ldn->klmn", local, down) + first[:, None])
        return torch.einsum("klmn,lnd->klmd", hidden, up) + second[:, None]

    merged = {}
    for name in ("text", "visual"):
        local = torch.stack([array for key, array in others.items() if key.endswith(f"/{name}")])
        asks = own[f"aggregator.{name}.asks"]
        gamma = torch.einsum("lmd,klmd->kl", asks, narrow(name, "query", local)).softmax(dim=0)
        merged[name] = torch.einsum("kl,klmd->lmd", gamma, narrow(name, "value", local))
    return F.cross_entropy(plain.deep(merged), LABELS)


LOSSES: Final[dict[str, Callable[[Plain, Arrays, Arrays], Tensor]]] = {
    "zerodfl": zerodfl,
    "feddpt": feddpt,
    "plan prompts": plan_prompts,
    "plan aggregators": plan_aggregators,
}
