"""A node of mesh-wide rounds, step by step: what a test feeds it and reads from its effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from fednode.core.events import Delivered, Effect, PeerUp, Received, Send, Tune, Tuned
from fednode.core.policy import NodeContext, Policy
from fednode.core.rounds.engine import Rounds
from fednode.core.settings import RoundSettings
from fednode.core.types import MEASURE, Message, Report, Tensors
from fednode.policies import plan as aggregator
from fednode.policies.plan import Plan, PlanConfig
from fednode.policies.promptfl import PromptFLConfig
from fednode.testing import frame
from tests.unit.policies.methods import PROMPTFL
from tests.unit.policies.tiny import drawn

PEERS = ("b", "c")
START = Tensors({"context": np.zeros((1, 2))})
PLAN_SHAPES = {"text": (1, 2, 4), "visual": (1, 2, 4)}


def context(policy: str, peers: Sequence[str] = PEERS, **rounds: Any) -> NodeContext:
    """Return the frame of node "a", in sync mode where nothing else is said."""
    settings = RoundSettings(**{"mode": "sync", "max": 9, **rounds})
    return frame(policy, peers=tuple(peers), rounds=settings)


def up(policy: Policy) -> Rounds:
    for peer in policy.context.peers:
        policy.handle(0.0, PeerUp(peer))
    return cast("Rounds", policy)


def promptfl(given: NodeContext | None = None, **config: Any) -> Rounds:
    return up(PROMPTFL.start(PromptFLConfig(**config), given or context("promptfl"), START))


def plan(given: NodeContext | None = None, **config: Any) -> Rounds:
    arrays: dict[str, tuple[int, ...]] = dict(PLAN_SHAPES)
    for name, shape in PLAN_SHAPES.items():
        arrays |= aggregator.aggregator_shapes(name, shape, 2, tied=False)
    start = drawn(Tensors({name: np.zeros(shape) for name, shape in arrays.items()}), 1)
    return up(Plan.start(PlanConfig(reduction=2, **config), given or context("plan"), start))


def row(value: float) -> Tensors:
    return Tensors({"context": np.full((1, 2), value)})


def job(effects: Sequence[Effect]) -> Tune:
    (tune,) = (one for one in effects if isinstance(one, Tune))
    return tune


def told(effects: Sequence[Effect], phase: str) -> Message:
    return next(
        one.message for one in effects if isinstance(one, Send) and one.message.phase == phase
    )


def trained(policy: Rounds, effects: Sequence[Effect], by: float = 1.0) -> list[Effect]:
    """End the one tuning among effects, in which everything moves by a number; or measure."""
    tune = job(effects)
    by = 0.0 if tune.job.stage == MEASURE else by
    moved = {name: one + np.float32(by) for name, one in tune.job.tensors.items()}
    return list(
        policy.handle(
            0.0, Tuned(tune.job, Report(tensors=Tensors(moved), metrics={"loss": 1.0}, samples=8))
        )
    )


def delivered(policy: Rounds, effects: Sequence[Effect]) -> list[Effect]:
    found: list[Effect] = []
    for one in effects:
        if isinstance(one, Send):
            found += policy.handle(0.0, Delivered(one.to, one.message))
    return found


def says(like: Message, peer: str, tensors: Tensors, **set_: Any) -> Received:
    return Received(replace(like, sender=peer, tensors=tensors, **set_))


def tried(
    policy: Rounds, effects: Sequence[Effect], losses: Sequence[float | None]
) -> tuple[list[Tensors], list[Effect]]:
    """Answer one trial after the other; return what was tried, and what follows the last."""
    asked: list[Tensors] = []
    for loss in losses:
        tune = job(effects)
        assert tune.job.stage == MEASURE
        assert not tune.job.measure
        asked.append(tune.job.tensors)
        metrics = {} if loss is None else {"validation_loss": loss}
        effects = policy.handle(
            0.0, Tuned(tune.job, Report(tensors=tune.job.tensors, metrics=metrics, samples=8))
        )
    return asked, list(effects)


def heard(policy: Rounds, effects: Sequence[Effect], by: Mapping[str, Tensors]) -> list[Effect]:
    """Let peers say their part of the stage under way; return what follows."""
    like = policy.context.message(policy.now.number, policy.now.stage)
    like = replace(like, base=policy.now.held.digest)
    like = next((one.message for one in effects if isinstance(one, Send)), like)
    found = delivered(policy, effects)
    for peer, tensors in by.items():
        found += policy.handle(0.0, says(like, peer, tensors))
    return found
