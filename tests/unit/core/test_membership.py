"""Who answers: how a peer's state follows from what was heard of it."""

from __future__ import annotations

import pytest

from node.core.membership import Membership
from node.core.settings import MembershipSettings


@pytest.fixture
def members() -> Membership:
    return Membership(("b", "a"), MembershipSettings(suspicion_probes=3))


def state(members: Membership, name: str = "a") -> str:
    return next(peer.state for peer in members.view() if peer.name == name)


def test_peers_start_unknown_and_sorted(members: Membership) -> None:
    assert [(peer.name, peer.state) for peer in members.view()] == [
        ("a", "unknown"),
        ("b", "unknown"),
    ]
    assert members.live() == ()
    assert "a" in members
    assert "z" not in members


def test_failures_in_a_row_make_suspect_and_then_dead(members: Membership) -> None:
    members.heard("a", 1.0, 4)
    assert members.failed("a", "silent") == ("alive", "suspect")
    assert members.live() == ("a",)
    assert members.failed("a", "silent") == ("suspect", "suspect")
    assert members.failed("a", "silent") == ("suspect", "dead")
    assert members.live() == ()
    assert members.failed("a", "silent") == ("dead", "dead")


def test_one_answer_forgives_all(members: Membership) -> None:
    members.heard("a", 1.0)
    members.failed("a", "silent")
    members.failed("a", "silent")
    assert members.heard("a", 2.0) == ("suspect", "alive")
    members.failed("a", "silent")
    assert members.failed("a", "silent") == ("suspect", "suspect")


def test_who_never_answered_stays_unknown_until_it_counts_as_dead(members: Membership) -> None:
    assert members.failed("a", "silent") == ("unknown", "unknown")
    members.failed("a", "silent")
    assert members.failed("a", "silent") == ("unknown", "dead")


def test_what_was_heard_is_kept(members: Membership) -> None:
    members.heard("a", 3.0, 7)
    members.heard("a", 5.0)
    (peer, _) = members.view()
    assert (peer.round, peer.heard_at, peer.reason) == (7, 5.0, "")


def test_busy_makes_nobody_alive_and_nobody_dead(members: Membership) -> None:
    assert members.busy("a", "it loads") == ("unknown", "unknown")
    assert members.view()[0].reason == "it loads"
    members.heard("a", 1.0)
    for _ in range(9):
        members.failed("a", "silent")
        assert members.busy("a", "much to do") == ("suspect", "suspect")


def test_refused_and_gone_are_not_live_and_come_back_when_heard(members: Membership) -> None:
    members.heard("a", 1.0)
    assert members.refused("a", 2.0, "it differs") == ("alive", "refused")
    assert members.live() == ()
    assert members.failed("a", "silent") == ("refused", "refused")
    assert members.heard("a", 3.0) == ("refused", "alive")
    assert members.left("a", 4.0) == ("alive", "dead")
    assert state(members) == "dead"
    members.failed("a", "silent")
    assert members.view()[0].reason == "it left the mesh"
    assert members.heard("a", 4.5) == ("dead", "dead")  # an answer from before the goodbye
    assert members.busy("a", "it leaves") == ("dead", "dead")
    assert members.view()[0].reason == "it left the mesh"
    assert members.heard("a", 5.0, 3) == ("dead", "alive")
    assert members.heard("a", 6.0) == ("alive", "alive")
