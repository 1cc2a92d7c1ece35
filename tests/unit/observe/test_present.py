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


def shown(records: list[Record], seen: KernelView) -> list[str]:
    events = Events()
    for one in records:
        events.record(one)
    return [one.record.kind for one in troubles(events, seen)]


def fault(kind: str, level: Level = "warning", **fields: Any) -> Record:
    return Record(kind, "text", level, fields)


ADOPTED = Record("round.adopted", "round 1 adopted")


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
    dead = fault("peer.dead", peer="b")
    assert shown([dead], seen) == [], "the warning says it"


def test_a_node_whose_first_round_waits_for_peers_does_not_go_on_alone() -> None:
    waiting = replace(view(b="dead"), alone=True, awaited="b", start_by=120.0)
    assert not alone(waiting)
    assert alone(replace(waiting, awaited=""))


@pytest.mark.parametrize(
    "kind",
    ["start.late", "round.deadline", "command", "run.began"],
)
def test_what_a_round_lacked_is_over_two_rounds_later(kind: str) -> None:
    assert shown([fault(kind), ADOPTED], view()) == [kind]
    assert shown([fault(kind), ADOPTED, ADOPTED], view()) == []


@pytest.mark.parametrize("kind", ["adopt.failed", "tune.failed"])
def test_what_failed_in_a_round_is_over_once_a_round_is_adopted(kind: str) -> None:
    """After the last round no further one comes."""
    assert shown([ADOPTED, fault(kind)], view()) == [kind]
    assert shown([fault(kind), ADOPTED], view()) == []


def test_a_difference_that_was_settled_is_over_and_a_bad_message_is_not() -> None:
    other = fault("message.refused", peer="b", reason="configuration")
    bad = fault("message.refused", peer="b", reason="norm")
    assert shown([other, bad], view(b="dead")) == ["message.refused"] * 2
    assert shown([other, bad], view(b="refused")) == ["message.refused"], "a warning says it"
    assert shown([other, bad], view(b="alive")) == ["message.refused"]


def test_what_the_warnings_say_is_not_said_twice_and_damage_stays() -> None:
    records = [
        fault("peer.unreachable", peer="b"), fault("reach.address", peer="b"),
        fault("state.differs"), fault("state.damaged"),
    ]  # fmt: skip
    assert shown([*records, ADOPTED, ADOPTED, ADOPTED], view(b="alive")) == ["state.damaged"]


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


def test_a_site_that_asks_to_join_is_said_until_it_is_a_member() -> None:
    asks = fault(ASKS, peer="b")
    assert shown([asks], view(c="alive")) == [ASKS]
    assert shown([asks], view(b="revoked")) == [ASKS]
    assert shown([asks], view(b="alive")) == []


def test_peers_with_other_settings_are_named_with_both_values() -> None:
    apart = "rounds.max is 20 at 'a' and 30 at 'b'"
    peers = (Member(name="b", state="refused", reason=apart),)
    seen = replace(view(), peers=peers, warnings=())
    assert warnings(seen, Telemetry(), "a") == [f"b is refused: {apart}"]
    assert warnings(replace(seen, awaited="b"), Telemetry(), "a") == [], "a note says it"


async def test_a_node_that_waits_says_before_which_round_and_how_to_go_on() -> None:
    waiting = replace(view(b="dead"), awaited="b (no answer)", round=23)
    (said,) = notes(waiting, "lab")
    assert said == (
        "before round 24 this node waits for b (no answer), without end; begin without: "
        "fednode resume lab --alone"
    )
    assert said.startswith(FIRST_ROUND)
