"""A guarded node of mesh-wide rounds: it uses its own prompts where the merged ones are worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fednode.core.events import Adopt, Adopted, Effect, PeerDown, Record, RoundDue, Tuned
from fednode.core.policy import NodeContext
from fednode.core.rounds.catchup import ADOPTED, STATE, WANT
from fednode.core.rounds.engine import Rounds
from fednode.core.rounds.exchange import sample
from fednode.core.settings import GuardSettings
from fednode.core.types import EMPTY, MEASURE, Report, Tensors
from fednode.policies.diprompt import DiPrompT, DiPrompTConfig
from fednode.policies.feddpt import FedDPT, FedDPTConfig
from fednode.policies.plan import AGGREGATORS, PROMPTS
from tests.unit.core.rounds.staged import (
    PEERS,
    context,
    heard,
    job,
    plan,
    promptfl,
    row,
    says,
    told,
    trained,
    tried,
    up,
)
from tests.unit.policies.methods import PROMPTFL
from tests.unit.policies.tiny import drawn

GUARD = GuardSettings(merged_rise=0.1)


def guarded(policy: str, domain: str = "", peers: Sequence[str] = PEERS) -> NodeContext:
    return replace(context(policy, peers), guard=GUARD, domain=domain)


def merged(policy: Rounds, number: int = 1) -> list[Effect]:
    """Run a round up to its choice: a tunes 1, b says 3 and c says 8, so 4 is merged."""
    effects = trained(policy, policy.handle(0.0, RoundDue(number)))
    return heard(policy, effects, {"b": row(3.0), "c": row(8.0)})


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


@pytest.mark.parametrize(("loss", "used"), [(1.0, 4.0), (1.09, 4.0), (1.11, 1.0), (9.0, 1.0)])
def test_the_own_prompts_are_used_where_the_merged_ones_are_worse(loss: float, used: float) -> None:
    policy = promptfl(guarded("promptfl"))
    asked, effects = tried(policy, merged(policy), [loss, 1.0])
    assert [float(one["context"][0, 0]) for one in asked] == [4.0, 1.0]
    notes = [one.text for one in effects if isinstance(one, Record)]
    said = f"the own prompts are used: the merged ones' validation loss is {loss:.3g}, theirs 1"
    wanted = [f"round 1: {said} (guard.merged_rise: 0.1)"] if used == 1.0 else []
    assert notes == wanted
    state = adopted(policy, effects).snapshot.policy
    assert float(state.tuned["context"][0, 0]) == used
    assert float(state.tensors["context"][0, 0]) == 4.0, "what is exchanged is the same"


def test_the_next_round_begins_where_everyones_does() -> None:
    policy = promptfl(guarded("promptfl"))
    _, effects = tried(policy, merged(policy), [2.0, 1.0])
    state = adopted(policy, effects).snapshot.policy
    assert float(job(policy.handle(0.0, RoundDue(2))).job.tensors["context"][0, 0]) == 4.0
    again = PROMPTFL.restore(policy.method.config, policy.context, state)
    assert again.state() == state
    assert float(job(again.handle(0.0, RoundDue(2))).job.tensors["context"][0, 0]) == 4.0


def values(tensors: Sequence[Tensors]) -> list[float]:
    return [float(one["context"][0, 0]) for one in tensors]


def test_a_node_goes_on_with_its_own_line_until_the_merged_prompts_are_better() -> None:
    policy = promptfl(guarded("promptfl"))
    _, effects = tried(policy, merged(policy), [2.0, 1.0])
    adopted(policy, effects)

    effects = merged(policy, 2)  # the others heard 4 + 1
    own = job(effects).job
    assert (own.stage, own.round, own.carry) == ("prompts", 2, EMPTY)
    assert values([own.tensors]) == [1.0], "from what it used before"
    asked, effects = tried(policy, trained(policy, effects), [2.0, 1.0])
    assert values(asked) == pytest.approx([16 / 3, 2.0])
    state = adopted(policy, effects).snapshot.policy
    assert values([state.tuned, state.tensors]) == pytest.approx([2.0, 16 / 3])

    asked, effects = tried(policy, trained(policy, merged(policy, 3)), [1.0, 1.0])
    assert values(asked) == pytest.approx([52 / 9, 3.0])
    state = adopted(policy, effects).snapshot.policy
    assert state.tuned == state.tensors

    asked, _ = tried(policy, merged(policy, 4), [1.0, 1.0])
    assert values(asked)[1] == pytest.approx(52 / 9 + 1), "no second tuning any more"


def test_the_own_line_outlives_a_restart() -> None:
    policy = promptfl(guarded("promptfl"))
    _, effects = tried(policy, merged(policy), [2.0, 1.0])
    state = adopted(policy, effects).snapshot.policy
    again = up(PROMPTFL.restore(policy.method.config, policy.context, state))
    assert values([job(merged(again, 2)).job.tensors]) == [1.0]


def test_a_node_that_took_over_a_state_keeps_its_own_line() -> None:
    policy = promptfl(guarded("promptfl", peers=("b",)))
    effects = trained(policy, policy.handle(0.0, RoundDue(1)))
    _, effects = tried(policy, heard(policy, effects, {"b": row(3.0)}), [2.0, 1.0])
    adopted(policy, effects)
    effects = trained(policy, policy.handle(0.0, RoundDue(2)))
    like = told(effects, "prompts")
    tuning = policy.handle(0.0, says(like, "b", row(6.0), round=9))
    want = told(tuning, WANT)
    packed = replace(policy.now.held, shared=row(7.0)).packed()
    policy.handle(0.0, says(want, "b", packed, round=9, phase=STATE, facts={ADOPTED: "8"}))
    effects = trained(policy, tuning)  # no round waits for a state: what it tunes ends first
    adopt = next(one for one in effects if isinstance(one, Adopt))
    state = adopt.snapshot.policy
    assert (state.round, *values([state.tuned, state.tensors])) == (8, 1.0, 7.0)


def test_alone_what_was_merged_is_its_own() -> None:
    policy = promptfl(guarded("promptfl"))
    for peer in PEERS:
        policy.handle(0.0, PeerDown(peer))
    effects = trained(policy, policy.handle(0.0, RoundDue(1)))
    asked, effects = tried(policy, effects, [1.0, 1.0])
    assert asked[0] == asked[1]
    assert adopted(policy, effects).snapshot.policy.tuned == asked[0]


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
