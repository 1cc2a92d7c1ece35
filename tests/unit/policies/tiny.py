"""A tiny random CLIP as a backbone, and batches for it: every objective in milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednode.clip import model as clip
from fednode.core.types import Tensors
from fednode.learn.prompt_module import Batch, PromptModule
from fednode.learn.settings import TuningSettings
from tests.unit.clip import tiny
from tests.unit.learn.jobs import first_loss, given

CLASSES = ("cat", "palm tree", "saxophone")
Wide = np.ndarray[Any, np.dtype[np.float64]]


def frozen() -> clip.FrozenClip:
    return tiny.frozen(tiny.clip(3))


def tuning(**set_: Any) -> TuningSettings:
    return TuningSettings(**{"context_length": 3, "init_std": 0.3, **set_})


def pixels(count: int = 5) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(4))


def features(count: int = 5) -> Tensor:
    drawn = torch.randn(count, tiny.EMBED, generator=torch.Generator().manual_seed(5))
    return torch.nn.functional.normalize(drawn, dim=1)


LABELS = torch.tensor([0, 2, 1, 1, 0])
NORMS = torch.linspace(3.0, 12.0, 5)
"""Lengths of the features before they were made unit."""


def wide(values: Tensor) -> Wide:
    return np.asarray(values.detach().double().numpy())


def unit(x: Wide) -> Wide:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def softmax(x: Wide, axis: int = -1) -> Wide:
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=axis, keepdims=True))


def drawn(tensors: Tensors, seed: int, deviation: float = 0.3) -> Tensors:
    """Return other arrays of the same shapes."""
    generator = np.random.default_rng(seed)
    return Tensors(
        {name: deviation * generator.standard_normal(one.shape) for name, one in tensors.items()}
    )


def seen_by(one: PromptModule) -> Batch:
    """Return what a module reads of five images, which have LABELS."""
    shown: dict[str, Any] = {"image_features": features(), "norms": NORMS}
    if one.uses_image_encoder:
        shown = {"images": pixels()}
    if one.per_image is not None:
        shown["per_image"] = one.per_image.of(pixels())
    return Batch(targets=LABELS, index_host=tuple(range(len(LABELS))), **shown)


def loss_of(one: PromptModule, prompts: dict[str, Tensor], *of: Any, **more: Any) -> Tensor:
    """Return the loss of the five images at the first step of a job. of, more: as of `given`."""
    return first_loss(one, given(prompts, CLASSES, *of, **more), seen_by(one))


def shown_by(one: PromptModule, prompts: dict[str, Tensor]) -> Wide:
    """Return the logits of the five images."""
    return wide(one.classifier(prompts, CLASSES)(seen_by(one)))


def cross_entropy(logits: Wide) -> float:
    """Return the mean cross-entropy of logits [5, classes] and LABELS."""
    return float(-np.log(softmax(logits)[np.arange(len(LABELS)), LABELS.numpy()]).mean())
