"""PLAN's exchange: its stages, and what each of them merges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fednode.clip.model import FrozenClip
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.settings import MergeSettings, RoundSettings
from fednode.core.types import Tensors
from fednode.policies import plan as aggregator
from fednode.policies.plan import AGGREGATORS, PROMPTS, Plan
from fednode.policies.plan import PlanPrompts as Objective
from fednode.testing import frame
from tests.unit.policies.plan.small import TOWERS, objective, some


def node(model: FrozenClip, **set_: Any) -> tuple[Plan, Objective]:
    one = objective(model, **set_)
    context = frame("plan", peers=("b",), rounds=RoundSettings(mode="sync"))
    return Plan(one.config, context), one


def test_without_aggregators_there_is_one_exchange_and_a_mean(model: FrozenClip) -> None:
    policy, one = node(model, aggregators="none")
    assert policy.stages == (PROMPTS,)
    assert set(one.initial(1)) == set(TOWERS)
    only_text, one = node(model, aggregators="text")
    held = MethodState(one.initial(1))
    assert only_text.stages == (PROMPTS, AGGREGATORS)
    assert not [name for name in only_text.shapes(AGGREGATORS, held) if "visual" in name]


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
