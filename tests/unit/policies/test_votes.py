"""Rounds in which nodes vote on contributions before they are merged (node/core/jury.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from node.core.events import (
    Adopt,
    Adopted,
    Effect,
    PeerDown,
    Record,
    RoundDue,
    Send,
    TimerFired,
    Tune,
    Tuned,
)
from node.core.facts import contributors
from node.core.jury import VOTES
from node.core.policy import DEADLINE, Context
from node.core.rounds import Staged
from node.core.settings import MergeSettings, RoundSettings
from node.core.types import MEASURE, Message, Report, Tensors
from node.policies.feddpt.config import FedDPTConfig
from node.policies.feddpt.exchange import FedDPT
from node.policies.plan import aggregator
from node.policies.plan.exchange import AGGREGATORS, PROMPTS
from node.policies.promptfl.config import PromptFLConfig
from node.policies.promptfl.exchange import PromptFL
from tests.unit.policies.staged import (
    PEERS,
    START,
    context,
    delivered,
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
from tests.unit.policies.tiny import drawn

VOTE = MergeSettings("vote", rise=0.1)


def voting(frame: Context | None = None) -> Staged:
    return promptfl(frame, merge=VOTE)


def planned() -> Staged:
    return plan(merge=VOTE)


def ballot(**votes: float) -> Tensors:
    return Tensors({name: [vote] for name, vote in votes.items()})


def to_the_vote(policy: Staged, number: int = 1) -> list[Effect]:
    """Run a round up to its trial: a trains 1, b says 3 and c says 8."""
    effects = trained(policy, policy.handle(0.0, RoundDue(number)))
    return heard(policy, effects, {"b": row(3.0), "c": row(8.0)})


def test_each_contribution_is_measured_alone_and_the_rise_is_told() -> None:
    policy = voting()
    asked, effects = tried(policy, to_the_vote(policy), [2.0, 1.5, 1.75, 4.0])
    firsts = [float(one["context"][0, 0]) for one in asked]
    assert firsts == [0.0, 1.0, 3.0, 3.0], "8 is clipped to the median length"
    ballot_ = told(effects, VOTES + "prompts")
    assert ballot_.dtype == "float32"
    found = {name: float(one[0]) for name, one in ballot_.tensors.items()}
    assert found == {"a": -0.5, "b": -0.25, "c": 2.0}
    assert {one.to for one in effects if isinstance(one, Send)} == set(PEERS)


def test_what_harms_most_is_not_merged_and_is_named() -> None:
    policy = voting()
    _, effects = tried(policy, to_the_vote(policy), [2.0, 1.5, 1.75, 4.0])
    effects = heard(
        policy,
        effects,
        {"b": ballot(a=-0.1, b=-0.3, c=1.0), "c": ballot(a=5.0, b=5.0, c=-9.0)},
    )
    refused = [one for one in effects if isinstance(one, Record) and one.kind == "merge.refused"]
    assert [one.text for one in refused] == [
        "round 1: not merged, as most nodes' loss would rise by it: c"
    ]
    tune = job(effects)
    assert tune.job.stage == MEASURE
    assert tune.job.measure
    assert float(tune.job.tensors["context"][0, 0]) == 2.0, "the mean of 1 and 3"
    adopt = policy.handle(0.0, Tuned(tune.job, Report(tune.job.tensors, {}, 8)))[-1]
    assert isinstance(adopt, Adopt)
    assert adopt.givers == ("b",)


def test_where_all_are_let_in_the_merge_is_the_mean_of_what_was_tried() -> None:
    policy = voting()
    _, effects = tried(policy, to_the_vote(policy), [2.0, 1.5, 1.75, 1.0])
    effects = heard(policy, effects, dict.fromkeys(PEERS, ballot(a=-0.1, b=0.0, c=0.05)))
    assert not any(isinstance(one, Record) for one in effects)
    assert float(job(effects).job.tensors["context"][0, 0]) == pytest.approx(7 / 3)


def test_a_node_that_drifted_comes_back() -> None:
    """Two of three began elsewhere: what is far is what is far from the middle of all."""
    policy = voting()
    effects = trained(policy, policy.handle(0.0, RoundDue(1)))
    like = replace(told(effects, "prompts"), contributors="ab")  # began from elsewhere, both
    found = delivered(policy, effects)
    found += policy.handle(0.0, says(like, "b", row(101.0)))
    found += policy.handle(0.0, says(like, "c", row(103.0)))
    asked, _ = tried(policy, found, [2.0, 1.0, 1.0, 1.0])
    firsts = [float(one["context"][0, 0]) for one in asked]
    assert firsts == pytest.approx([0.0, 99.0, 101.0, 103.0])


@pytest.mark.parametrize("apart", [True, False])
def test_nodes_that_all_began_apart_agree_again(apart: bool) -> None:
    """What each hears is the same; clipped around its own prompts it would be another at each."""
    merged: list[Tensors] = []
    for start in (row(0.0), row(30.0) if apart else row(0.0)):
        policy = up(PromptFL.start(PromptFLConfig(merge=VOTE), context("promptfl"), start))
        effects = policy.handle(0.0, RoundDue(1))
        effects = trained(policy, effects, 1.0 - float(start["context"][0, 0]))
        like, found = told(effects, "prompts"), delivered(policy, effects)
        for peer, value in (("b", 3.0), ("c", 8.0)):
            theirs = replace(like, contributors=peer if apart else like.contributors)
            found += policy.handle(0.0, says(theirs, peer, row(value)))
        _, effects = tried(policy, found, [2.0, 1.0, 1.0, 1.0])
        effects = heard(policy, effects, dict.fromkeys(PEERS, ballot(a=0.0, b=0.0, c=0.0)))
        merged.append(job(effects).job.tensors)
    wanted = (1 + 3 + (5 if apart else 3)) / 3  # 8 is 5 from the middle, 3; the median is 2
    assert [float(one["context"][0, 0]) for one in merged] == pytest.approx([wanted, wanted])


def test_who_keeps_no_validation_images_abstains_and_others_decide() -> None:
    policy = voting()
    asked, effects = tried(policy, to_the_vote(policy), [None])
    assert len(asked) == 1
    assert told(effects, VOTES + "prompts").tensors == Tensors()
    effects = heard(policy, effects, dict.fromkeys(PEERS, ballot(a=-0.1, b=-0.1, c=1.0)))
    assert float(job(effects).job.tensors["context"][0, 0]) == 2.0


def test_where_nobody_votes_the_last_prompts_are_kept() -> None:
    policy = voting()
    _, effects = tried(policy, to_the_vote(policy), [None])
    effects = heard(policy, effects, dict.fromkeys(PEERS, Tensors()))
    assert job(effects).job.tensors == START


def test_votes_that_come_before_our_own_trial_is_over_count() -> None:
    policy = voting()
    effects = to_the_vote(policy)
    like = Message("m", "f", "promptfl", "b", 1, VOTES + "prompts", samples=8)
    for peer in PEERS:
        assert policy.handle(0.0, says(like, peer, ballot(a=0.0, b=0.0, c=3.0))) == []
    _, effects = tried(policy, effects, [2.0, 2.0, 2.0, 2.0])
    effects = delivered(policy, effects)
    assert float(job(effects).job.tensors["context"][0, 0]) == 2.0


def test_who_withholds_its_votes_is_waited_for_less_and_less() -> None:
    policy, waited = voting(), 0
    for number in range(1, 9):
        effects = trained(policy, policy.handle(0.0, RoundDue(number)))
        like = told(effects, "prompts")  # c is the first to speak, and says no more
        found = [*policy.handle(0.0, says(like, "c", row(8.0))), *delivered(policy, effects)]
        found += policy.handle(0.0, says(like, "b", row(3.0)))
        _, effects = tried(policy, found, [2.0, 1.0, 1.0, 1.0])
        effects = heard(policy, effects, {"b": ballot(a=0.0, b=0.0, c=0.0)})
        if not any(isinstance(one, Tune) for one in effects):
            waited += 1
            effects = list(policy.handle(0.0, TimerFired(DEADLINE)))
            assert "c" in next(one.text for one in effects if isinstance(one, Record))
        tune = job(effects)
        (adopt,) = policy.handle(0.0, Tuned(tune.job, Report(tune.job.tensors, {}, 8)))
        assert isinstance(adopt, Adopt)
        policy.handle(0.0, Adopted(adopt.snapshot))
    assert waited == 3, "in rounds 1, 3 and 6"


def test_a_ballot_of_another_shape_is_refused() -> None:
    policy = voting()
    made = Message("m", "f", "promptfl", "b", 1, VOTES + "prompts", ballot(a=1.0))
    assert policy.fault(made) == ""
    bad = replace(made, tensors=Tensors({"a": [[1.0, 2.0]]}))
    assert policy.fault(bad) == "the vote on 'a' is [1, 2]; it is one number"
    plain = PromptFL.start(PromptFLConfig(), context("promptfl"), START)
    assert plain.fault(made) == "promptfl has no phase 'votes.prompts'"


def test_votes_need_somebody_who_waits_for_them() -> None:
    config = PromptFLConfig(merge=VOTE)
    assert PromptFL.unfit(config, RoundSettings(mode="sync"), "") == ""
    assert PromptFL.unfit(config, RoundSettings(mode="quorum"), "") == ""
    assert "waits for votes" in PromptFL.unfit(config, RoundSettings(mode="async"), "")


def test_a_domains_prompt_is_judged_by_all_and_kept_where_its_owner_is_refused() -> None:
    """A Fed-DPT slot with one owner: no merge of one contribution can tell that it lies."""
    config = FedDPTConfig(domains=("art", "photo"), merge=VOTE)
    shapes = {"text.art": (3, 2), "text.photo": (3, 2), "visual.art": (4,), "visual.photo": (4,)}
    start = drawn(Tensors({name: np.zeros(shape) for name, shape in shapes.items()}), 2)
    policy = up(FedDPT.start(config, replace(context("feddpt"), domain="art"), start))
    effects = trained(policy, policy.handle(0.0, RoundDue(1)))
    own = told(effects, "prompts").tensors
    visual = {name: start[name] + 2 for name in ("visual.art", "visual.photo")}
    art = Tensors({"text.art": start["text.art"] + 3, **visual})
    photo = Tensors({"text.photo": start["text.photo"] + 9, **visual})
    asked, effects = tried(
        policy, heard(policy, effects, {"b": art, "c": photo}), [2.0, 1.0, 1.0, 9.0]
    )
    assert asked[0] == start
    factor = np.sqrt((6 * 3**2 + 8 * 2**2) / (6 * 9**2 + 8 * 2**2))  # b's length, c's length
    np.testing.assert_array_equal(asked[3]["text.art"], start["text.art"])
    np.testing.assert_allclose(asked[3]["text.photo"], start["text.photo"] + 9 * factor, rtol=1e-5)
    np.testing.assert_allclose(asked[3]["visual.art"], start["visual.art"] + 2 * factor, rtol=1e-5)
    votes = ballot(a=-1.0, b=-1.0, c=7.0)
    found = job(heard(policy, effects, dict.fromkeys(PEERS, votes))).job.tensors
    np.testing.assert_array_equal(found["text.photo"], start["text.photo"])
    np.testing.assert_allclose(found["text.art"], (own["text.art"] + art["text.art"]) / 2)


def test_plans_two_exchanges_are_voted_on_each() -> None:
    """Local prompts are tried as global ones, aggregators by the prompts that they make."""
    policy = planned()
    start = policy.held.shared
    effects = trained(policy, policy.handle(0.0, RoundDue(1)))
    own = told(effects, PROMPTS).tensors
    bad = Tensors({name: one - 5 for name, one in own.items()})
    effects = heard(policy, effects, {"b": own, "c": bad})
    asked, effects = tried(policy, effects, [2.0, 1.0, 1.0, 5.0])
    assert asked[0] == start
    for name in bad:  # five against, in all four of ours, so clipped to one
        np.testing.assert_allclose(asked[3][name], start[name] - 1, rtol=1e-5)
    votes = dict.fromkeys(PEERS, ballot(a=-1.0, b=-1.0, c=3.0))
    effects = heard(policy, effects, votes)
    assert job(effects).job.stage == AGGREGATORS
    assert len(job(effects).job.reference) == 4, "two arrays of a and of b, none of c"

    effects = trained(policy, effects)
    made = told(effects, AGGREGATORS)
    assert made.contributors == contributors({"a": own, "b": own}), "of those let in"
    worse = Tensors({name: one - 2 for name, one in made.tensors.items()})
    effects = heard(policy, effects, {"b": made.tensors, "c": worse})
    asked, effects = tried(policy, effects, [2.0, 1.0, 1.0, 5.0])
    first = {name: start[name] for name in made.tensors}
    text = aggregator.aggregate(first, "text", [own["text"]] * 2, residual=False)
    np.testing.assert_array_equal(asked[0]["text"], text)
    text = aggregator.aggregate(worse, "text", [own["text"]] * 2, residual=False)
    np.testing.assert_allclose(asked[3]["text"], text, rtol=1e-5)
    found = job(heard(policy, effects, votes)).job.tensors
    for name in made.tensors:
        np.testing.assert_array_equal(found[name], made.tensors[name])


@pytest.mark.parametrize("made", [voting, planned])
def test_a_round_without_peers_votes_on_its_own(made: Any) -> None:
    policy = made()
    for peer in PEERS:
        policy.handle(0.0, PeerDown(peer))
    effects = trained(policy, policy.handle(0.0, RoundDue(1)))
    _, effects = tried(policy, effects, [2.0, 1.0])
    assert any(isinstance(one, Tune) for one in effects)


def test_changes_are_clipped_around_none() -> None:
    """In int8 nodes tell changes: what is longer than the median change is shortened."""
    config = PromptFLConfig(merge=VOTE, wire_dtype="int8")
    first = row(5.0)
    policy = up(PromptFL.start(config, context("promptfl"), first))
    effects = trained(policy, policy.handle(0.0, RoundDue(1)))
    effects = heard(policy, effects, {"b": row(2.0), "c": row(-9.0)})
    asked, _ = tried(policy, effects, [2.0, 1.0, 1.0, 1.0])
    firsts = [float(one["context"][0, 0]) for one in asked]
    assert firsts == pytest.approx([5.0, 6.0, 7.0, 3.0])
