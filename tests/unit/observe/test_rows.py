"""The page's table of the mesh: what is taken of what members say, the headline, the time left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednode.observe.rows import FRESH_S, LOST, SelfView, columns, headline, left_s, rows, self_view
from fednode.wire.gen import status_pb2

Peer = status_pb2.Peer


def status(name: str, **states: str) -> status_pb2.StatusReply:
    peers = [Peer(name=peer, state=state) for peer, state in sorted(states.items())]
    return status_pb2.StatusReply(name=name, life="running", phase="idle", peers=peers)


def said(by: str, at: float, **states: str) -> SelfView:
    return self_view(status(by, **states), frozenset("abcd"), at)


def test_every_node_has_a_row_and_this_node_is_the_first() -> None:
    now = status("c", a="alive", b="dead", d="unknown")
    heard = {
        "a": said("a", 99.0, b="alive", c="alive"),
        "b": said("b", 100 - FRESH_S - 1, a="dead"),
    }
    found = rows(now, heard, 100.0)
    assert [one.name for one in found] == ["c", "a", "b", "d"]
    assert [one.state for one in found] == ["running", "alive", "dead", "unknown"]
    assert [one.told is None for one in found] == [False, False, False, True]
    assert [one.ago_s for one in found] == [0.0, 1.0, FRESH_S + 1, 0.0]
    # a is seen by c, and not by b, which said so too long ago; c sees b as dead, and a does not.
    assert [one.seen for one in found] == [(1, 1), (1, 1), (1, 2), (0, 1)]


def test_what_the_policy_shows_of_peers_becomes_sorted_columns() -> None:
    peers = [Peer(name="a", shown={"weight": "2"}), Peer(name="b"), Peer(shown={"chosen": "1"})]
    assert columns(peers) == ["chosen", "weight"]
    assert columns([Peer(name="b")]) == []


def test_a_member_says_nothing_but_known_words_shares_and_members() -> None:
    reply = status("b", a="alive", ghost="alive")
    reply.life, reply.phase = "dead of laughter", "<b>"
    reply.measured.update({"own": 0.5, "new": 7.0, "zero_shot_own": 0.25, "praise": 1.0})
    reply.measured["base"] = float("nan")
    found = self_view(reply, frozenset("a"), 0.0)
    assert (found.life, found.phase) == ("unreadable", "unreadable")
    assert found.accuracies == {"own": 0.5, "zero_shot_own": 0.25}
    assert found.states == {"a": "alive"}
    assert found.sent == {"a": 0}
    assert (found.loss, found.left_s) == (None, None)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.floats())
def test_any_pace_gives_a_time_or_none(done: int, most: int, pace: float) -> None:
    reply = status_pb2.StatusReply(life="running", round=done, rounds_max=most, round_s=pace)
    found = left_s(reply)
    assert found is None or 0 < found <= 1e8


@pytest.mark.parametrize(
    ("life", "done", "most", "pace", "left"),
    [
        ("running", 10, 40, 2.0, 60.0),
        ("paused", 10, 40, 2.0, None),
        ("running", 10, 0, 2.0, None),
        ("running", 40, 40, 2.0, None),
        ("running", 0, 40, 0.0, None),
    ],
)
def test_the_time_left_is_the_rounds_left_at_the_latest_pace(
    life: str, done: int, most: int, pace: float, left: float | None
) -> None:
    reply = status_pb2.StatusReply(life=life, round=done, rounds_max=most, round_s=pace)
    assert left_s(reply) == left


def test_a_lost_peer_changes_the_headline() -> None:
    well = [Peer(name="b", state="alive"), Peer(name="c", state="unknown", heard_s=-1)]
    assert headline(well) is None
    assert headline([*well, Peer(name="z", state="left")]) is None
    doubted = headline([*well, Peer(name="d", state="suspect", heard_s=4)])
    assert doubted is not None
    assert not doubted.bad
    assert doubted.short == "d is suspect"
    reason = "no answer to three pings."
    dead = Peer(name="e", state="dead", heard_s=90, reason=reason)
    never = Peer(name="f", state="refused", heard_s=-1)
    found = headline([*well, dead])
    assert found is not None
    assert found.bad
    assert found.short == "e is offline"
    assert found.text == (
        "1 of 3 peers can be reached: e is offline (last heard 2 min ago, no answer to three "
        "pings)."
    )
    both = headline([dead, never])
    assert both is not None
    assert both.short == "2 peers are lost"
    assert "f is refused (never heard)" in both.text
    many = headline([Peer(name=f"p{at}", state="dead") for at in range(5)])
    assert many is not None
    assert many.short == "5 peers are offline"
    assert many.text.endswith("; and 2 more.")


@pytest.mark.parametrize("state", sorted(LOST))
def test_each_kind_of_loss_is_bad(state: str) -> None:
    found = headline([Peer(name="b", state=state)])
    assert found is not None
    assert found.bad


def test_a_member_that_left_or_was_removed_is_not_missed() -> None:
    assert headline([Peer(name="b", state="revoked"), Peer(name="c", state="left")]) is None
    found = headline([Peer(name=name, state=state) for name, state in zip(
        "bcd", ("alive", "revoked", "dead"), strict=True)])  # fmt: skip
    assert found is not None
    assert found.text.startswith("1 of 2 peers can be reached: d is offline")
