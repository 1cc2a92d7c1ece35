"""The rounds of a node: whether its peers wait for it, and how it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core import events as ev
from fednode.core.life import Life
from fednode.core.members.table import Members
from fednode.core.run import Run
from fednode.core.types import MergeCounts, Snapshot
from fednode.policies.zerodfl import ZeroDFL
from tests.unit.core.scenes import FACTS, context, zerodfl


def made(counts: MergeCounts, round_: int = 5, peers: str = "bc") -> Run:
    """Return the run of a node of five rounds."""
    policy = zerodfl()
    state = replace(policy.state(), round=round_)
    policy = ZeroDFL.restore(policy._config, policy._context, state)
    held = Snapshot(state, {"loss": 0.5}, merge_counts=counts)
    return Run(context(), Members(peers), FACTS, policy, held, zerodfl)


@pytest.mark.parametrize(
    ("life", "counts", "round_", "active"),
    [
        (Life.FINISHED, MergeCounts(5, 0), 5, False),
        (Life.FINISHED, MergeCounts(5, 1), 5, True),
        (Life.PAUSED, MergeCounts(3, 3), 3, False),
        (Life.RUNNING, MergeCounts(5, 0), 5, True),
        (Life.WAITING, MergeCounts(), 0, True),
    ],
)
def test_a_node_is_active_unless_it_is_paused_or_ran_alone(
    life: Life, counts: MergeCounts, round_: int, active: bool
) -> None:
    assert made(counts, round_).active(life) == active


def test_a_mesh_of_one_is_alone_by_wish() -> None:
    assert made(MergeCounts(5, 0), peers="").active(Life.FINISHED)


def test_a_paused_node_is_active_until_its_round_is_over() -> None:
    run = made(MergeCounts(3, 3), 3)
    assert not run.active(Life.PAUSED)
    run.tell(0.0, ev.RoundDue(4))
    assert run.active(Life.PAUSED)
