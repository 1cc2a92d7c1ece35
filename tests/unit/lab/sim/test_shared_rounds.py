"""Mesh-wide rounds under delay, loss, crashes and partitions (core/rounds/engine.py)."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.core.types import EMPTY, Job
from fednode.learn.quadratic import QuadraticLearner
from tests.contract.seeds import seeds
from tests.unit.lab.sim.meshes import KINDS, NAMES, Kind, digests, mesh, promptfl, run, texts

ALL = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@ALL
def test_in_sync_all_nodes_end_alike_whatever_the_delays(kind: Kind) -> None:
    ends = set()
    for seed in (1, 2, 3):
        world = run(mesh(kind, seed))
        assert texts(world, "round.deadline") == texts(world, "round.drift") == []
        assert len(set(digests(world).values())) == 1
        ends |= set(digests(world).values())
    assert len(ends) == 1


@ALL
@pytest.mark.parametrize("seed", seeds(1, 4))
def test_lost_messages_and_answers_cost_time_and_no_deadline(kind: Kind, seed: int) -> None:
    """A tenth of all messages and of all answers is lost; the outcome is that of a whole network.

    Nobody is given up for dead here: a peer that is would rightly be merged without.
    """
    whole = run(mesh(kind))
    world = run(mesh(kind, seed, loss=0.1))
    if texts(world, "peer.dead"):
        assert len(set(digests(world).values())) == 1
        return
    assert texts(world, "round.deadline") == []
    assert digests(world) == digests(whole)


@ALL
@pytest.mark.parametrize("at_s", [0.1, 0.31, 0.7])
def test_a_node_that_crashes_and_comes_back_changes_nothing(kind: Kind, at_s: float) -> None:
    whole, world = run(mesh(kind)), mesh(kind)
    world.run(lambda: False, at_s)
    world.crash("b")
    world.start("b")
    run(world)
    assert texts(world, "round.deadline") == []
    assert digests(world) == digests(whole)


@ALL
def test_a_node_that_was_away_takes_over_the_state_of_the_others(kind: Kind) -> None:
    world = mesh(kind, most=30)
    world.run(lambda: False, 1.0)
    world.crash("b")
    world.run(lambda: world.kernel("a").view().round > 12, 600.0)
    world.start("b")
    run(world)
    assert bool(texts(world, "round.taken")) == kind.policy.shared_state
    assert texts(world, "round.deadline") == []
    assert len(set(digests(world).values())) == 1
    assert {host.durable.policy.round for host in world.hosts.values() if host.durable} == {30}


@ALL
def test_the_dead_are_not_waited_for(kind: Kind) -> None:
    world = mesh(kind, most=12)
    world.run(lambda: False, 0.5)
    world.crash("c")
    run(world)
    assert texts(world, "round.deadline") == []
    alive = {name: digest for name, digest in digests(world).items() if name != "c"}
    assert len(set(alive.values())) == 1


@ALL
def test_who_gave_up_all_others_does_not_run_away_from_them(kind: Kind) -> None:
    """Three slow nodes let a quick one wait in vain, and then are quick themselves."""
    world = mesh(kind, most=30, deadline_s=5.0)
    slow = [world.hosts[name] for name in NAMES[1:]]
    world.run(lambda: world.kernel("a").view().round == 2, 600.0)
    for host in slow:
        host.tune_s = 40.0
    world.run(lambda: len(texts(world, "round.deadline")) == 3, 600.0)
    for host in slow:
        host.tune_s = 0.2
    run(world)
    assert len(set(digests(world).values())) == 1


@pytest.mark.parametrize("weights", ["samples", "equal"])
def test_the_mean_is_that_of_float64(weights: str) -> None:
    """Averaging against the closed form: x <- mean_i w_i (x + (1 - (1-a)^k)(t_i - x))."""
    world = run(mesh(promptfl(weights=weights), most=5))
    learners = [QuadraticLearner(name, shapes={"context": (4, 3)}) for name in NAMES]
    x = learners[0].initial(1)["context"].astype(np.float64)
    share = np.array([10, 20, 30, 40]) if weights == "samples" else np.ones(4)
    share = share / share.sum()
    for _ in range(5):
        tuned = [x + (1 - 0.9**8) * (one.target - x) for one in learners]
        x = sum(w * one for w, one in zip(share, tuned, strict=True))
    durable = world.hosts["a"].durable
    assert durable is not None
    assert np.allclose(durable.policy.tensors["context"], x, atol=1e-6)


def test_samples_are_capped() -> None:
    """A node that claims a billion images weighs as much as ten median nodes."""
    lying, honest = (
        run(mesh(promptfl(), most=2, samples=(10, 20, 30, claimed))) for claimed in (10**9, 250)
    )
    assert digests(lying) == digests(honest)


def test_int8_with_error_feedback_stays_near_float32() -> None:
    """What rounding takes comes with the next change: errors do not add up over rounds."""
    exact, rough = (run(mesh(promptfl(wire_dtype=one), most=25)) for one in ("float32", "int8"))
    ends = []
    for world in (exact, rough):
        durable = world.hosts["a"].durable
        assert durable is not None
        ends.append(durable.policy.tensors["context"])
    scale = np.abs(ends[0]).max() / 127
    assert np.abs(ends[1] - ends[0]).max() < 2 * scale
    sent = [world.traffic["prompts"].payload for world in (exact, rough)]
    assert sent[1] / sent[0] == pytest.approx((12 + 4) / 48)


def test_an_untrained_report_is_measured_after_the_merge() -> None:
    world = run(mesh(promptfl(), most=3))
    learner = world.hosts["a"].learner
    for name in NAMES:
        durable = world.hosts[name].durable
        assert durable is not None
        measured = world.hosts[name].learner.evaluate(durable.policy.tensors, lambda: False)
        assert durable.metrics["own"] == measured["own"]
        assert world.kernel(name).view().metrics == durable.metrics
    job = Job(round=1, stage="measure", tensors=learner.initial(1), seed=1)
    assert learner.tune(job, lambda: False, lambda _: None).tensors == job.tensors != EMPTY
