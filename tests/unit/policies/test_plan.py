"""PLAN: its exchange, its aggregators against equations 12 and 13, and its objective."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.settings import MergeSettings, RoundSettings
from fednode.core.types import Tensors
from fednode.policies import plan as aggregator
from fednode.policies.plan import AGGREGATORS, PROMPTS, Plan, PlanConfig, aggregate
from fednode.policies.plan import PlanPrompts as Objective
from fednode.testing import frame
from tests.unit.learn.jobs import given, job, leaves, started
from tests.unit.policies.reference import Plain
from tests.unit.policies.tiny import (
    CLASSES,
    cross_entropy,
    drawn,
    pixels,
    seen_by,
    shown_by,
    softmax,
    tuning,
    wide,
)

TOWERS = {"text": (2, 3, 32), "visual": (2, 3, 32)}


def objective(model: FrozenClip, **set_: Any) -> Objective:
    set_ = {"description": "name", **set_}
    return Objective(model, tuning(), PlanConfig(reduction=8, **set_))


def some(seed: int) -> Tensors:
    return drawn(Tensors({name: np.zeros(shape) for name, shape in TOWERS.items()}), seed)


def node(model: FrozenClip, **set_: Any) -> tuple[Plan, Objective]:
    one = objective(model, **set_)
    context = frame("plan", peers=("b",), rounds=RoundSettings(mode="sync"))
    return Plan(one.config, context), one


def test_the_arrays_of_a_variant_are_those_of_its_prompts_and_aggregators(
    model: FrozenClip,
) -> None:
    """Without aggregators there is one exchange, and a mean; depth bounds the blocks."""
    policy, one = node(model, aggregators="none")
    assert policy.stages == (PROMPTS,)
    assert set(one.initial(1)) == set(TOWERS)
    only_text, one = node(model, aggregators="text")
    held = MethodState(one.initial(1))
    assert only_text.stages == (PROMPTS, AGGREGATORS)
    assert not [name for name in only_text.shapes(AGGREGATORS, held) if "visual" in name]
    shapes = objective(model, depth=1).initial(1).shapes
    assert shapes["text"] == shapes["visual"] == (1, 3, 32)
    assert shapes[f"{aggregator.AGGREGATOR}text.asks"] == (1, 3, 32)
    assert objective(model, depth=9).initial(1).shapes == objective(model).initial(1).shapes


def test_aggregators_learn_from_the_prompts_that_they_merge(model: FrozenClip) -> None:
    policy, one_objective = node(model, merge=MergeSettings(rule="krum"))
    honest = [some(seed) for seed in (2, 3, 4)]
    liar = Tensors({name: np.float32(1e6) * one for name, one in some(5).items()})
    given = [Contribution(name, one, 8) for name, one in zip("abcd", [*honest, liar], strict=True)]
    held = MethodState(one_objective.initial(1))
    first = Round(1, PROMPTS, held, held)
    second = replace(first, stage=AGGREGATORS, heard={PROMPTS: tuple(given)})
    assert policy.merge(first, given) == held, "only the last stage makes new global prompts"
    made = policy.job(second)
    assert made is not None
    local = [
        {tower: np.asarray(made.reference[f"{at:03d}/{tower}"]) for tower in TOWERS}
        for at in range(len(given))
    ]
    weights = aggregator.split(held.shared)[1]
    own = Contribution("a", weights, 8)
    merged = policy.merge(second, [own]).shared
    for tower in TOWERS:
        lengths = [float(np.linalg.norm(one[tower])) for one in local]
        assert lengths[-1] < 3 * max(lengths[:-1])
        arrays = [one[tower] for one in local]
        wanted = aggregator.global_prompts(weights, tower, arrays, False)
        assert np.array_equal(merged[tower], wanted)


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


def test_a_residual_aggregator_begins_as_a_weighted_mean(model: FrozenClip) -> None:
    one = objective(model, residual=True)
    local = [some(seed)["visual"] for seed in (1, 1, 1)]
    merged = aggregator.global_prompts(one.initial(1), "visual", local, residual=True)
    bias = np.asarray(one.initial(1)["aggregator.visual.value.up_bias"])
    assert not bias.any()
    assert np.allclose(merged, local[0], atol=1e-6)


def probabilities(model: FrozenClip, prompts: Tensors) -> np.ndarray:
    """Equations 6 and 8 through open_clip's own blocks."""
    return softmax(wide(Plain(model).deep(leaves(prompts))))


@pytest.mark.parametrize(
    ("kl", "world", "teacher"),
    [(0.0, 2, "none"), (0.5, 2, "none"), (1.0, 0, "zero_shot"), (1.0, 0, "none")],
)
def test_the_first_stage_is_cross_entropy_and_the_pull_to_the_global_prompts(
    model: FrozenClip, kl: float, world: int, teacher: str
) -> None:
    """In round one there are no global prompts: zero-shot teaches, or nothing. world: a seed."""
    one, local = objective(model, kl=kl, first_teacher=teacher), some(1)
    p = probabilities(model, local)
    taught = probabilities(model, some(world)) if world else p
    if teacher == "zero_shot":
        images = wide(model.vision.encode(pixels()).features)
        taught = softmax(model.logit_scale * images @ wide(one.handwritten(CLASSES)).T)
    pull = (taught * np.log(taught / p)).sum(axis=1).mean()
    assert (pull > 0.01) == (taught is not p)
    reference = leaves(some(world)) if world else None
    inputs = started(one, given(leaves(local), CLASSES, job(PROMPTS), reference))
    for _ in range(2):  # the second time the teacher is remembered
        found = float(one.loss(seen_by(one), inputs))
        assert found == pytest.approx(cross_entropy(np.log(p)) + kl * pull, rel=1e-4)


@pytest.mark.parametrize(
    ("description", "text"), [("sentence", "a photo of a {}."), ("name", "{}.")]
)
@pytest.mark.parametrize("depth", [0, 1])
def test_text_prompts_stand_before_the_description(
    model: FrozenClip, description: str, text: str, depth: int
) -> None:
    """Equation 2, run through open_clip's own blocks at full length; depth 1 is shallow."""
    one = objective(model, description=description, depth=depth)
    prompts = leaves(Tensors({name: x[: depth or len(x)] for name, x in some(1).items()}))
    wanted = wide(Plain(model, text).deep(prompts))
    assert np.allclose(shown_by(one, prompts), wanted, atol=1e-3)
