"""Steps of the papers by open_clip's own modules: every text at full length, losses as written.

Nothing here is fednode's: the tests of the objectives compare losses and gradients with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import open_clip
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.model import FrozenClip

Method = Literal["zerodfl", "feddpt", "plan-a", "plan-b"]
Arrays = dict[str, Tensor]
CLASSES, LENGTH, IMAGES, CLIENTS = 4, 3, 5, 3
BOTTLENECK = 8
"""PLAN's aggregators narrow each prompt vector to 1/8 of its width."""
DOMAIN_TEMPERATURE = 0.1
"""Fed-DPT's tau_d, equation 5."""


@dataclass(slots=True, kw_only=True)
class Inputs:
    """What a step reads: names, labels, unit image features [B, D], pixels [B, 3, H, W].

    start: initial values of the arrays that are tuned. constants: prompts of others.
    """

    names: tuple[str, ...]
    labels: Tensor
    features: Tensor
    pixels: Tensor
    start: Arrays
    constants: Arrays = field(default_factory=dict)


def inputs(frozen: FrozenClip, method: Method) -> Inputs:
    """Draw the inputs of a step; equal for equal methods."""
    draw = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    text, vision = frozen.text, frozen.vision
    side = frozen.model.visual.image_size
    high, wide = side if isinstance(side, tuple) else (side, side)
    joint = text.encode(text.tokens(["x"])).shape[1]
    made = Inputs(
        names=tuple(open_clip.IMAGENET_CLASSNAMES[:CLASSES]),
        labels=torch.arange(IMAGES) % CLASSES,
        features=F.normalize(normal(IMAGES, joint), dim=-1),
        pixels=normal(IMAGES, 3, high, wide),
        start={"context": 0.02 * normal(LENGTH, text.width)},
    )
    if method == "feddpt":
        made.start["visual"] = 0.02 * normal(1, CLIENTS, vision.width)
        made.constants = {"context": 0.02 * normal(CLIENTS - 1, LENGTH, text.width)}
    if method in {"zerodfl", "feddpt"}:
        return made
    shapes = {
        "text": (text.layers, LENGTH, text.width),
        "visual": (vision.layers, LENGTH, vision.width),
    }
    if method == "plan-a":
        made.start = {name: 0.02 * normal(*shape) for name, shape in shapes.items()}
        made.constants = {name: 0.02 * normal(*shape) for name, shape in shapes.items()}
        return made
    made.constants = {name: 0.02 * normal(CLIENTS, *shape) for name, shape in shapes.items()}
    made.start = {}
    for name, (layers, rows, width) in shapes.items():
        narrow = max(1, width // BOTTLENECK)
        for part in ("query", "value"):
            made.start[f"{name}.{part}.down"] = 0.02 * normal(layers, width, narrow)
            made.start[f"{name}.{part}.up"] = 0.02 * normal(layers, narrow, width)
        made.start[f"{name}.asks"] = 0.02 * normal(layers, rows, width)
    return made


class Plain:
    """open_clip's modules, called as the papers' code calls them."""

    def __init__(self, frozen: FrozenClip, names: tuple[str, ...]) -> None:
        model: Any = frozen.model
        self._visual, self._text = model.visual, getattr(model, "text", model)
        held = " ".join(["X"] * LENGTH)
        texts = [f"{held} {name}." for name in names]
        self._ids = frozen.tokenizer(texts, frozen.text.length_max)

    def texts(self, context: Tensor, deep: Tensor | None = None) -> Tensor:
        """Return unit features [classes, D] for [m, width], [N, classes, D] for [N, m, width]."""
        if context.dim() == 3:
            return torch.stack([self.texts(client) for client in context])
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

    def images(self, pixels: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return unit features, and the last block's class-token query and prompt keys."""
        tower, count = self._visual, prompts.shape[1]
        x = tower.conv1(pixels).flatten(2).transpose(1, 2)
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


def _looks(block: Any, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    attention, width = block.attn, x.shape[2]
    normed = block.ln_1(torch.cat([x[:, :1], x[:, -count:]], dim=1))
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    both = F.linear(normed, weight[: 2 * width], bias[: 2 * width])
    q, k = both.view(len(x), 1 + count, 2, attention.num_heads, -1).transpose(1, 3).unbind(2)
    return q[:, :, 0], k[:, :, 1:]


def loss(frozen: FrozenClip, method: Method, given: Inputs, prompts: Arrays) -> Tensor:
    """Return the loss of a step."""
    encoders, scale = Plain(frozen, given.names), frozen.logit_scale
    match method:
        case "zerodfl":
            texts = encoders.texts(prompts["context"])
            return F.cross_entropy(scale * given.features @ texts.T, given.labels)
        case "feddpt":
            return _feddpt(encoders, given, prompts)
        case "plan-a":
            logits = _deep(encoders, given, prompts, scale)
            with torch.no_grad():
                taught = _deep(encoders, given, given.constants, scale).log_softmax(dim=1)
            student = logits.log_softmax(dim=1)
            drift = F.kl_div(student, taught, reduction="batchmean", log_target=True)
            return F.nll_loss(student, given.labels) + drift
        case "plan-b":
            merged = {
                name: aggregate(prompts, name, constant)
                for name, constant in given.constants.items()
            }
            return F.cross_entropy(_deep(encoders, given, merged, scale), given.labels)


def _feddpt(encoders: Plain, given: Inputs, prompts: Arrays) -> Tensor:
    """Return Fed-DPT's loss: text features of the true class, weighted by domain (eq. 5, 9)."""
    with torch.no_grad():
        others = encoders.texts(given.constants["context"])
    own = encoders.texts(prompts["context"])
    features, query, keys = encoders.images(given.pixels, prompts["visual"])
    looks = torch.einsum("bhd,bhnd->bhn", query, keys).mean(dim=1)
    weights = (looks * query.shape[-1] ** -0.5 / DOMAIN_TEMPERATURE).softmax(dim=1)
    banks = torch.cat([own[None], others])[:, given.labels]
    mixed = F.normalize(torch.einsum("bn,nbd->bd", weights, banks), dim=1)
    return -(features * mixed).sum(dim=1).mean()


def _deep(encoders: Plain, given: Inputs, prompts: Arrays, scale: float) -> Tensor:
    texts = encoders.texts(prompts["text"][0], prompts["text"][1:])
    return scale * encoders.images(given.pixels, prompts["visual"])[0] @ texts.T


def aggregate(weights: Arrays, name: str, local: Tensor) -> Tensor:
    """Return PLAN's global prompts [L, m, width] of K local ones [K, L, m, width] (stage B)."""

    def narrow(part: str) -> Tensor:
        hidden = torch.einsum("klmd,ldn->klmn", local, weights[f"{name}.{part}.down"])
        return torch.einsum("klmn,lnd->klmd", F.gelu(hidden), weights[f"{name}.{part}.up"])

    asked = torch.einsum("lmd,klmd->kl", weights[f"{name}.asks"], narrow("query"))
    return torch.einsum("kl,klmd->lmd", asked.softmax(dim=0), narrow("value"))
