"""Settings documents in the status, and the commands on them that a node's operator alone gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fednode.errors import ConfigError, Refused
from fednode.learn.closed_form import ClosedFormLearner
from fednode.observe.settings import Proposal, Shown, reply_of
from fednode.observe.status import NodeService
from fednode.storage.store import Store
from tests.unit.observe.nodes import FakeNode
from tests.unit.observe.test_status import serving
from tests.unit.runtime.daemons import ABOUT

PROPOSAL = Proposal(
    number=3,
    digest="c" * 32,
    signer="b",
    start=12,
    changes=("rounds.max: 20 -> 30", "the rounds go on"),
    decision="accepted",
    accepted_by=("c",),
    run_by=("d",),
    undecided=("e",),
    fault="/home/x/model.pt is missing",
)
SHOWN = Shown(number=2, digest="b" * 32, signer="a", proposals=(PROPOSAL,), others=("d",))


class Decider:
    """Notes what was decided."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def shown(self) -> Shown:
        return SHOWN

    async def propose(self, proof: bytes) -> str:
        self.asked.append(proof)
        return "proposed"

    async def take(self, which: str) -> str:
        self.asked.append(which)
        if which == "wrong":
            raise ConfigError("No proposed settings are called 'wrong'.")
        return "taken"

    async def refuse(self, which: str) -> str:
        self.asked.append(which)
        return "refused"


def test_all_that_there_is_to_show_is_in_the_status() -> None:
    found = reply_of(SHOWN)
    (one,) = found.proposals
    assert (found.number, found.digest, found.signer, list(found.others)) == (
        2,
        "b" * 32,
        "a",
        ["d"],
    )
    assert (one.number, one.digest, one.signer, one.start) == (3, "c" * 32, "b", 12)
    assert list(one.changes) == list(PROPOSAL.changes)
    assert (one.decision, list(one.accepted_by), list(one.run_by)) == ("accepted", ["c"], ["d"])
    assert one.fault == PROPOSAL.fault


async def test_the_operator_decides_and_a_fault_is_one_sentence(tmp_path: Path) -> None:
    store, decider = Store(tmp_path), Decider()
    service = NodeService(store, ABOUT)
    async with serving(service) as (client, where):
        with pytest.raises(Refused, match="is still loading"):
            await client.control(where, "take")
        service.attach(FakeNode(), ClosedFormLearner("a"))
        service.deciding = decider
        assert await client.control(where, "propose", b"signed") == "proposed"
        assert await client.control(where, "take", which="3") == "taken"
        assert await client.control(where, "refuse") == "refused"
        with pytest.raises(Refused, match="called 'wrong'"):
            await client.control(where, "take", which="wrong")
        assert decider.asked == [b"signed", "3", "", "wrong"]
        assert (await client.status(where)).settings == reply_of(SHOWN)
    store.close()


async def test_members_see_the_settings_and_decide_nothing(tmp_path: Path) -> None:
    store, decider = Store(tmp_path), Decider()
    service = NodeService(store, ABOUT, lambda _: "ANOTHER")
    service.attach(FakeNode(), ClosedFormLearner("a"))
    service.deciding = decider
    async with serving(service) as (client, where):
        for command in ("propose", "take", "refuse"):
            with pytest.raises(Refused, match="only the key of 'a' itself may command it"):
                await client.control(where, command)
        (one,) = (await client.status(where)).settings.proposals
        assert (one.number, one.fault) == (3, ""), "a fault may name files"
    assert decider.asked == []
    store.close()


async def test_a_node_answers_under_the_settings_that_it_runs_under(tmp_path: Path) -> None:
    store = Store(tmp_path)
    service = NodeService(store, ABOUT)
    service.attach(FakeNode(), ClosedFormLearner("a"))
    service.swap(replace(ABOUT, policy="gda", model="other"), ClosedFormLearner("b"))
    async with serving(service) as (client, where):
        reply = await client.status(where)
        assert (reply.policy, reply.model) == ("gda", "other")
    store.close()
