"""A status as a reply: what it says of the rounds again, in notes and warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.life import Life
from fednode.core.members.table import Member
from fednode.core.types import Again, MergeCounts
from fednode.core.view import KernelView
from fednode.learn.closed_form import ClosedFormLearner
from fednode.observe.reply import loading, running
from tests.unit.observe.nodes import FakeNode
from tests.unit.runtime.daemons import ABOUT


class Over(FakeNode):
    """A node that ran nine rounds alone. word, waits: what its kernel shows."""

    word: Again = "ended"
    waits = ""

    def view(self) -> KernelView:
        return replace(
            super().view(), life=Life.FINISHED, merge_counts=MergeCounts(9, 0), redo=self.word,
            redo_waits=self.waits,
        )  # fmt: skip


def over(word: Again, waits: str = "", state: str = "alive") -> Over:
    node = Over(peers=(Member(name="b", state=state),), addresses={"b": "127.0.0.1:1"})
    node.word, node.waits = word, waits
    return node


async def test_a_node_that_ran_alone_and_meets_a_peer_offers_to_begin_again() -> None:
    learner = ClosedFormLearner("a")
    (said,) = running(over("ended"), learner, ABOUT).warnings
    assert said == (
        "0 of 9 rounds merged a peer's prompts, and b can be reached now: fednode redo a begins "
        "the rounds again at once"
    )
    (said,) = running(over("ended", "c (no answer)"), learner, ABOUT).warnings
    assert said.endswith("again as soon as all can take part (missing: c (no answer))")
    (said,) = running(over("ended", state="dead"), learner, ABOUT).warnings
    assert said == "0 of 9 rounds merged a peer's prompts"


@pytest.mark.parametrize("privacy", [True, False])
async def test_a_node_that_agreed_says_what_it_waits_for_and_what_privacy_costs(
    privacy: bool,
) -> None:
    about = replace(ABOUT, privacy=privacy)
    reply = running(over("again", "c (no answer)"), ClosedFormLearner("a"), about)
    (note,) = reply.notes
    assert note.startswith("the rounds begin again as soon as all can take part (missing: c (no")
    assert "fednode resume a --alone" in note
    assert "fednode pause a" in note
    assert ("the privacy account goes on" in note) == privacy
    (warning,) = reply.warnings
    assert warning == "0 of 9 rounds merged a peer's prompts"


def test_a_node_that_loads_says_who_it_is() -> None:
    reply = loading(ABOUT, 1.5, "http://127.0.0.1:1/")
    assert (reply.name, reply.life, reply.uptime_s) == ("a", "loading", 1.5)
    assert reply.page == "http://127.0.0.1:1/"
