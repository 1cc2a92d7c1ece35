"""The loss of each method, written once for both sides of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.lab.bench.encoders import Encoders, Ours
from fednode.lab.bench.tasks import Inputs

Prompts = Mapping[str, Tensor]
DOMAIN_TEMPERATURE = 0.1
"""Fed-DPT's tau_d, equation 5."""


def loss(encoders: Encoders, given: Inputs, prompts: Prompts, scale: float) -> Tensor:
    """Return the loss of a step; scale: CLIP's logit scale."""
    match given.task.method:
        case "text":
            texts = encoders.texts(prompts["context"])
            return 1.0 - (texts * given.anchors).sum(dim=1).mean()
        case "zerodfl":
            texts = encoders.texts(prompts["context"])
            return F.cross_entropy(scale * _features(encoders, given) @ texts.T, given.labels)
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


def _features(encoders: Encoders, given: Inputs) -> Tensor:
    """Return image features; if the task says so, the reference encodes the images, too."""
    if given.task.encoded and not isinstance(encoders, Ours):
        with torch.no_grad():
            encoders.images(given.pixels)
    return given.features


def _feddpt(encoders: Encoders, given: Inputs, prompts: Prompts) -> Tensor:
    """Return Fed-DPT's loss: text features of the true class, weighted by domain (eq. 5, 9)."""
    with torch.no_grad():
        others = encoders.texts(given.constants["context"])
    own = encoders.texts(prompts["context"])
    seen = encoders.images(given.pixels, prompts["visual"])
    looks = torch.einsum("bhd,bhnd->bhn", seen.query.float(), seen.keys.float()).mean(dim=1)
    weights = (looks * seen.query.shape[-1] ** -0.5 / DOMAIN_TEMPERATURE).softmax(dim=1)
    banks = torch.cat([own[None], others])[:, given.labels]
    mixed = F.normalize(torch.einsum("bn,nbd->bd", weights, banks), dim=1)
    return 1.0 - (seen.features * mixed).sum(dim=1).mean()


def _deep(encoders: Encoders, given: Inputs, prompts: Prompts, scale: float) -> Tensor:
    texts = encoders.texts(prompts["text"][0], prompts["text"][1:])
    return scale * encoders.images(given.pixels, prompts["visual"]).features @ texts.T


def aggregate(weights: Prompts, name: str, local: Tensor) -> Tensor:
    """Return PLAN's global prompts [L, m, width] of K local ones [K, L, m, width] (stage B)."""

    def narrow(part: str) -> Tensor:
        hidden = torch.einsum("klmd,ldn->klmn", local, weights[f"{name}.{part}.down"])
        return torch.einsum("klmn,lnd->klmd", F.gelu(hidden), weights[f"{name}.{part}.up"])

    asked = torch.einsum("lmd,klmd->kl", weights[f"{name}.asks"], narrow("query"))
    return torch.einsum("kl,klmd->lmd", asked.softmax(dim=0), narrow("value"))
