"""A tiny random CLIP as a backbone, and batches for it: every objective in milliseconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fednode.clip import model as clip
from fednode.clip.settings import PLAIN
from fednode.core.types import Tensors
from fednode.learn.settings import TuningSettings
from tests.unit.clip import tiny

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


class Sizes:
    """What an objective asks of a ViT-B/16 to say how its arrays start."""

    template = PLAIN

    class text:
        width, layers = 512, 12

        @staticmethod
        def embed_words(words: str) -> torch.Tensor:
            return torch.zeros(len(words.split()), 512)

    class vision:
        width, layers = 768, 12


def count_published(kind: Any, config: Any, length: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the parameters of an objective with ViT-B/16."""
    monkeypatch.setattr("fednode.learn.texts.ClassTexts.__init__", lambda self, backbone: None)
    monkeypatch.setattr(
        "fednode.learn.texts.ClassTexts.written", lambda self, names, template: torch.zeros(1, 512)
    )
    one = kind(Sizes, tuning(context_length=length, init_words=None), config)
    return sum(math.prod(shape) for shape in one.initial(1).shapes.values())
