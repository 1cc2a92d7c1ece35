"""A status as a reply: what it says of the rounds again, in notes and warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.members.table import Member
from fednode.core.types import MergeCounts
from fednode.core.view import KernelView, Life
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.reply import loading, running
from tests.unit.observe.nodes import FakeNode
from tests.unit.runtime.daemons import ABOUT


class Over(FakeNode):
    """A node that ran nine rounds alone."""

    def view(self) -> KernelView:
        return replace(
            super().view(),
            life=Life.FINISHED,
            round=9,
            rounds_max=9,
            merge_counts=MergeCounts(9, 0),
        )


@pytest.mark.parametrize("state", ["alive", "dead"])
async def test_a_node_that_ran_alone_says_what_to_do_once_it_meets_a_peer(state: str) -> None:
    node = Over(peers=(Member(name="b", state=state),), addresses={"b": "127.0.0.1:1"})
    (said,) = running(node, QuadraticLearner("a"), ABOUT).warnings
    lonely = "0 of 9 rounds merged a peer's prompts"
    met = f"{lonely}, and b can be reached now: fednode reset and fednode start at a begin the"
    assert said == (f"{met} rounds again" if state == "alive" else lonely)


def test_a_node_that_loads_says_who_it_is() -> None:
    reply = loading(ABOUT, 1.5, "http://127.0.0.1:1/")
    assert (reply.name, reply.life, reply.uptime_s) == ("a", "loading", 1.5)
    assert reply.page == "http://127.0.0.1:1/"
