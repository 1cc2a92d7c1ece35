"""One run of a node's rounds: what is new if the rounds begin again, and what is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core import events as ev
from fednode.core.documents import Documents
from fednode.core.life import Life
from fednode.core.members.table import Members
from fednode.core.run import Run
from fednode.core.types import MergeCounts, Report, Snapshot
from tests.unit.core.scenes import FACTS, context, zerodfl


def made(counts: MergeCounts, round_: int = 5, redone: int = 0, peers: str = "bc") -> Run:
    """Return the run of a node of five rounds."""
    policy = zerodfl()
    state = replace(policy.state(), round=round_)
    policy = policy.restore(policy._config, policy._context, state)
    held = Snapshot(state, {"loss": 0.5}, merge_counts=counts, redone=redone)
    return Run(context(), Members(peers), FACTS, policy, held, zerodfl, Documents())


@pytest.mark.parametrize(
    ("life", "counts", "round_", "word"),
    [
        (Life.FINISHED, MergeCounts(5, 0), 5, "ended"),
        (Life.PAUSED, MergeCounts(5, 0), 5, "ended"),
        (Life.PAUSED, MergeCounts(3, 0), 3, ""),
        (Life.RUNNING, MergeCounts(5, 0), 5, ""),
        (Life.WAITING, MergeCounts(5, 0), 5, ""),
        (Life.FINISHED, MergeCounts(5, 1), 5, ""),
    ],
)
def test_the_word_of_a_run(life: Life, counts: MergeCounts, round_: int, word: str) -> None:
    assert made(counts, round_).word(life) == word
    assert made(counts, round_, peers="").word(life) == "", "a mesh of one is alone by wish"


def test_the_run_that_follows_is_new_and_counts_how_often_it_began() -> None:
    run = made(MergeCounts(5, 0), redone=1)
    run.redo.asked = True
    for name in "bc":
        run.redo.members.heard(name, 1.0, 2)
    record, adopt = run.begin_again(Life.FINISHED)
    assert isinstance(record, ev.Record)
    assert isinstance(adopt, ev.Adopt)
    assert run.begin_again(Life.FINISHED) == [], "once"
    fresh = run.following(adopt.snapshot)
    assert (fresh.round, fresh.redo.done, fresh.merge_counts, fresh.metrics) == (0, 2, (0, 0), {})
    assert fresh.policy is not run.policy
    assert fresh.gate is not run.gate
    assert fresh.wait.meets is None
    run.redo.alone = True
    assert run.following(adopt.snapshot).wait.meets == frozenset("bc")


def test_a_run_with_a_word_sends_nothing() -> None:
    run = made(MergeCounts(5, 0))
    run.tell(0.0, ev.PeerUp("b"), "")
    effects = run.tell(0.0, ev.RoundDue(6), "")
    (tune,) = [one for one in effects if isinstance(one, ev.Tune)]
    done = ev.Tuned(tune.job, Report(tensors=tune.job.tensors, metrics={}, samples=1))
    muted = made(MergeCounts(5, 0))
    muted.tell(0.0, ev.PeerUp("b"), "ended")
    muted.tell(0.0, ev.RoundDue(6), "ended")
    assert any(isinstance(one, ev.Send) for one in run.tell(1.0, done, ""))
    assert not any(isinstance(one, ev.Send) for one in muted.tell(1.0, done, "ended"))
    assert run.exchanges
    assert not muted.exchanges
