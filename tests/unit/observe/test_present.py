"""What status says is wrong now, and which recorded faults it leaves out because they are over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fednode.core.events import ASKS, Level, Record
from fednode.core.members.table import Member
from fednode.core.policy import Activity
from fednode.core.view import KernelView, Life
from fednode.observe.events import Events
from fednode.observe.present import (
    FIRST_ROUND,
    alone,
    below_zero_shot,
    notes,
    troubles,
    warnings,
)
from fednode.observe.telemetry import Telemetry


def view(**peers: str) -> KernelView:
    return KernelView(
        life=Life.RUNNING, activity=Activity.IDLE, round=3, rounds_max=9, metrics={}, refused={},
        peers=tuple(Member(name=name, state=state) for name, state in peers.items()),
        best_round=0, best_validation=0.0, alone=False, warnings=("c speaks, but ...",),
    )  # fmt: skip


def fault(kind: str, level: Level = "warning", **fields: Any) -> Record:
    return Record(kind, "text", level, fields)


ADOPTED = Record("round.adopted", "round 1 adopted")
OF_A_ROUND = ("start.late", "round.deadline", "command", "run.began")


async def test_offline_peers_are_one_sentence_while_they_are_offline() -> None:
    now = asyncio.get_running_loop().time()
    peers = (
        Member(name="b", state="dead", heard_at=now - 90, reason="nobody answers at b:1"),
        *(Member(name=name, state="dead") for name in "cde"),
        *(Member(name=name, state=name) for name in ("alive", "left", "revoked")),
    )
    seen = replace(view(), peers=peers, warnings=())
    assert warnings(seen, Telemetry(), "a") == [
        "4 of 5 peers are offline: b (last heard 2 min ago; nobody answers at b:1), c (never heard)"
        ", d (never heard) and 1 more"
    ]
    assert warnings(replace(seen, awaited="b"), Telemetry(), "a") == [], "a note says it"
    assert warnings(replace(seen, peers=peers[4:]), Telemetry(), "a") == []
    apart = "rounds.max is 20 at 'a' and 30 at 'b'"
    refused = replace(seen, peers=(Member(name="b", state="refused", reason=apart),))
    assert warnings(refused, Telemetry(), "a") == [f"b is refused: {apart}"]
    assert warnings(replace(refused, awaited="b"), Telemetry(), "a") == [], "a note says it"


def test_a_node_whose_first_round_waits_for_peers_does_not_go_on_alone() -> None:
    waiting = replace(view(b="dead"), alone=True, awaited="b", start_by=120.0)
    assert not alone(waiting)
    assert alone(replace(waiting, awaited=""))


OTHER = fault("message.refused", peer="b", reason="configuration")
BAD = fault("message.refused", peer="b", reason="norm")
ASKED = fault(ASKS, peer="b")


@pytest.mark.parametrize(
    ("records", "seen", "said"),
    [
        # What a round lacked is over two rounds later.
        *(([fault(kind), ADOPTED], view(), [kind]) for kind in OF_A_ROUND),
        *(([fault(kind), ADOPTED, ADOPTED], view(), []) for kind in OF_A_ROUND),
        # What failed is over once a round is adopted: after the last round no further one comes.
        *(([ADOPTED, fault(kind)], view(), [kind]) for kind in ("adopt.failed", "tune.failed")),
        *(([fault(kind), ADOPTED], view(), []) for kind in ("adopt.failed", "tune.failed")),
        # A difference that was settled is over, or a warning says it; a bad message is not over.
        ([OTHER, BAD], view(b="dead"), ["message.refused"] * 2),
        ([OTHER, BAD], view(b="refused"), ["message.refused"]),
        ([OTHER, BAD], view(b="alive"), ["message.refused"]),
        # A site that asks to join is said until it is a member.
        ([ASKED], view(c="alive"), [ASKS]),
        ([ASKED], view(b="revoked"), [ASKS]),
        ([ASKED], view(b="alive"), []),
        # What the warnings say is not said twice, and damage stays.
        ([fault("peer.unreachable", peer="b"), fault("peer.dead", peer="b")], view(b="dead"), []),
        ([fault("reach.address", peer="b"), fault("state.differs")], view(b="alive"), []),
        ([fault("state.damaged"), *[ADOPTED] * 3], view(b="alive"), ["state.damaged"]),
    ],
)
def test_troubles_that_are_over_are_left_out(
    records: list[Record], seen: KernelView, said: list[str]
) -> None:
    events = Events()
    for one in records:
        events.record(one)
    assert [one.record.kind for one in troubles(events, seen)] == said


def test_accuracies_below_the_hand_written_prompt_come_with_what_to_try() -> None:
    measured = {"own": 0.45, "base": 0.7, "new": 0.6, "validation": 0.1, "zero_shot_own": 0.5}
    (said,) = below_zero_shot(measured | {"zero_shot_base": 0.7, "zero_shot_new": 0.625})
    assert said.startswith(
        "this node is less accurate than the hand-written prompt (zero-shot): own 45.0 % against "
        "50.0 %, new 60.0 % against 62.5 %; try more images"
    )
    assert below_zero_shot({"own": 0.5, "zero_shot_own": 0.5}) == []
    assert below_zero_shot({"own": 0.1}) == []
    assert below_zero_shot({"own": 0.724, "zero_shot_own": 0.729}) == []  # two of 410 images


async def test_a_node_that_waits_says_before_which_round_and_how_to_go_on() -> None:
    waiting = replace(view(b="dead"), awaited="b (no answer)", round=23)
    (said,) = notes(waiting, "lab")
    assert said == (
        "before round 24 this node waits for b (no answer), without end; begin without: "
        "fednode resume lab --alone"
    )
    assert said.startswith(FIRST_ROUND)
