"""A guarded node of mesh-wide rounds: it uses its own prompts where the merged ones are worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fednode.core.events import Adopt, Adopted, Effect, RoundDue, Tuned
from fednode.core.policy import NodeContext
from fednode.core.rounds.engine import Rounds
from fednode.core.rounds.exchange import sample
from fednode.core.settings import GuardSettings
from fednode.core.types import MEASURE, Report, Tensors
from fednode.policies.diprompt import DiPrompT, DiPrompTConfig
from fednode.policies.feddpt import FedDPT, FedDPTConfig
from fednode.policies.plan import AGGREGATORS, PROMPTS
from tests.unit.core.rounds.staged import (
    PEERS,
    context,
    heard,
    job,
    plan,
    told,
    trained,
    tried,
    up,
)
from tests.unit.policies.tiny import drawn

GUARD = GuardSettings(merged_rise=0.1)


def guarded(policy: str, domain: str = "", peers: Sequence[str] = PEERS) -> NodeContext:
    return replace(context(policy, peers), guard=GUARD, domain=domain)


def adopted(policy: Rounds, effects: Sequence[Effect]) -> Adopt:
    """Measure what will be used, and adopt it."""
    tune = job(effects)
    assert tune.job.stage == MEASURE
    assert tune.job.measure
    report = Report(tensors=tune.job.tensors, metrics={"validation": 0.5}, samples=8)
    (adopt,) = policy.handle(0.0, Tuned(tune.job, report))
    assert isinstance(adopt, Adopt)
    policy.handle(0.0, Adopted(adopt.snapshot))
    return adopt


def test_a_fed_dpt_node_has_what_it_tuned_and_others_slots_as_the_round_began() -> None:
    config = FedDPTConfig(domains=("art", "photo"))
    shapes = {"text.art": (3, 2), "text.photo": (3, 2), "visual.art": (4,), "visual.photo": (4,)}
    start = drawn(Tensors({name: np.zeros(shape) for name, shape in shapes.items()}), 2)
    policy = up(FedDPT.start(config, guarded("feddpt", "art"), start))
    effects = trained(policy, policy.handle(0.0, RoundDue(1)))
    own = told(effects, "prompts").tensors
    other = {name: one + 5 for name, one in start.items() if name != "text.art"}
    effects = heard(policy, effects, dict.fromkeys(PEERS, Tensors(other)))
    asked, effects = tried(policy, effects, [2.0, 1.0])
    assert asked[1] == Tensors({**start, **own})
    assert set(own) == {"text.art", "visual.art", "visual.photo"}
    assert adopted(policy, effects).snapshot.policy.tuned == asked[1]


def test_a_plan_node_has_its_local_prompts() -> None:
    policy = plan(guarded("plan"))
    effects = trained(policy, policy.handle(0.0, RoundDue(1)))
    own = told(effects, PROMPTS).tensors
    effects = trained(policy, heard(policy, effects, dict.fromkeys(PEERS, own)))
    same = told(effects, AGGREGATORS).tensors
    asked, effects = tried(policy, heard(policy, effects, dict.fromkeys(PEERS, same)), [2.0, 1.0])
    assert {name: asked[1][name].tobytes() for name in own} == {
        name: one.tobytes() for name, one in own.items()
    }
    assert asked[1].shapes == asked[0].shapes
    state = adopted(policy, effects).snapshot.policy
    assert (state.tuned, state.tensors) == (asked[1], asked[0])


def test_a_node_that_was_not_drawn_keeps_what_it_used_or_takes_what_was_merged() -> None:
    config = DiPrompTConfig(domains=("art",), participants=1)
    start = drawn(Tensors({"global": np.zeros((3, 2)), "domain.art": np.zeros((3, 2))}), 2)
    policy = up(DiPrompT.start(config, guarded("diprompt"), start))
    used, seen = start, set()
    for number in range(1, 11):
        before, apart = policy.now.held.shared, used != policy.now.held.shared
        effects = list(policy.handle(0.0, RoundDue(number)))
        (only,) = sample(1, number, ("a", *PEERS), 1)
        sat_out = only != "a"
        change = Tensors({name: np.ones_like(one) for name, one in start.items()})
        spoke = dict.fromkeys(PEERS, change)
        effects = heard(policy, effects, spoke) if sat_out else trained(policy, effects)
        seen.add((sat_out, apart))
        if not sat_out and apart:
            assert job(effects).job.tensors == used
            effects = trained(policy, effects)
        if apart or not sat_out:
            asked, effects = tried(policy, effects, [2.0, 1.0])
            assert not sat_out or asked[1] == used
        used = adopted(policy, effects).snapshot.policy.tuned
        assert (
            before != policy.now.held.shared
        ) == sat_out  # this node's own training moves nothing
    assert len(seen) == 4, "drawn or not, apart or not"
