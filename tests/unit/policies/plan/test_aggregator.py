"""PLAN's aggregators against equations 12 and 13, and the paper's count of parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.policies import plan as aggregator
from fednode.policies.plan import aggregate
from tests.unit.learn.jobs import leaves
from tests.unit.policies.plan.small import objective, some
from tests.unit.policies.tiny import (
    drawn,
    softmax,
)


def by_hand(weights: Tensors, name: str, local: list[np.ndarray], residual: bool) -> np.ndarray:
    """Equations 12 and 13, block by block and client by client."""

    def f(part: str, block: int, x: np.ndarray) -> np.ndarray:
        key = f"aggregator.{name}.{part}."
        down, bias, up, end = (
            np.asarray(weights[key + each], dtype=np.float64)
            for each in ("down", "down_bias", "up", "up_bias")
        )
        at = min(block, len(down) - 1)
        hidden = x @ down[at] + bias[at]
        gelu = np.vectorize(lambda u: 0.5 * u * (1 + math.erf(u / math.sqrt(2))))(hidden)
        return np.asarray(gelu @ up[at] + end[at])

    asks = np.asarray(weights[f"aggregator.{name}.asks"], dtype=np.float64)
    blocks = []
    for block in range(len(local[0])):
        mine = [np.asarray(one[block], dtype=np.float64) for one in local]
        ask = asks[min(block, len(asks) - 1)]
        gamma = softmax(np.array([(ask * f("query", block, one)).sum() for one in mine]))
        blocks.append(
            sum(
                g * (f("value", block, one) + (one if residual else 0.0))
                for g, one in zip(gamma, mine, strict=True)
            )
        )
    return np.stack(blocks)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_numpy_and_torch_merge_as_equations_12_and_13(tied: bool, residual: bool) -> None:
    shapes = aggregator.aggregator_shapes("text", (2, 3, 32), 8, tied)
    weights = drawn(Tensors({name: np.zeros(shape) for name, shape in shapes.items()}), 3, 0.5)
    local = [some(seed)["text"] for seed in (4, 5, 6)]
    wanted = by_hand(weights, "text", local, residual)
    merged = aggregator.global_prompts(weights, "text", local, residual)
    assert np.allclose(merged, wanted, atol=1e-6)
    stack = torch.tensor(np.stack(local))
    assert np.allclose(aggregate(leaves(weights), "text", stack, residual), wanted, atol=1e-5)
    # Which client counts how much is the attention's: equal weights give something else.
    turned = aggregator.global_prompts(weights, "text", local[::-1], residual)
    assert np.allclose(turned, merged, atol=1e-6)
    mean = sum(aggregator.global_prompts(weights, "text", [one], residual) for one in local) / 3
    assert np.abs(merged - mean).max() > 0.1


def test_parameters_are_as_many_as_the_paper_has() -> None:
    """ViT-B/16: 122,880 numbers of prompts, 5,269,248 of untied aggregators."""
    towers = {"text": (12, 8, 512), "visual": (12, 8, 768)}
    assert sum(math.prod(shape) for shape in towers.values()) == 122_880
    count = sum(
        math.prod(shape)
        for name, prompts in towers.items()
        for shape in aggregator.aggregator_shapes(name, prompts, 8, tied=False).values()
    )
    assert count == 5_269_248


def test_a_residual_aggregator_begins_as_a_weighted_mean(model: FrozenClip) -> None:
    one = objective(model, residual=True)
    local = [some(seed)["visual"] for seed in (1, 1, 1)]
    merged = aggregator.global_prompts(one.initial(1), "visual", local, residual=True)
    bias = np.asarray(one.initial(1)["aggregator.visual.value.up_bias"])
    assert not bias.any()
    assert np.allclose(merged, local[0], atol=1e-6)
