"""How a member's state follows from what this node sees and what others say."""

from __future__ import annotations

import pytest

from fednode.core.members.table import GREETINGS, INCARNATION_MAX, MEMBERS_MAX, Members
from fednode.core.types import MemberUpdate, Standing


@pytest.fixture
def members() -> Members:
    return Members(("b", "a"))


def state(members: Members, name: str = "a") -> str:
    return members[name].state


def news(what: Standing, incarnation: int = 0, name: str = "a", **more: str) -> MemberUpdate:
    return MemberUpdate(name, what, incarnation, **more)  # type: ignore[arg-type]


def test_peers_start_unknown_and_sorted(members: Members) -> None:
    assert [(peer.name, peer.state) for peer in members.view()] == [
        ("a", "unknown"),
        ("b", "unknown"),
    ]
    assert members.live() == ()
    assert "a" in members
    assert "z" not in members


def test_a_peer_that_never_answered_counts_as_dead_after_some_greetings(members: Members) -> None:
    for _ in range(GREETINGS - 1):
        members.failed("a", 1.0, "nobody there")
        assert state(members) == "unknown"
    members.failed("a", 1.0, "nobody there")
    assert (state(members), members["a"].reason) == ("dead", "nobody there")
    members.heard("a", 1.0)
    assert state(members) == "alive"


def test_a_suspect_is_live_until_it_is_buried_and_one_sign_of_life_clears_it(
    members: Members,
) -> None:
    members.heard("a", 1.0, 4)
    members.suspect("a", "silent")
    assert (members.live(), members["a"].reason) == (("a",), "silent")
    members.heard("a", 2.0)
    members.bury("a")
    assert (state(members), members["a"].round, members["a"].reason) == ("alive", 4, "")
    members.suspect("a", "silent")
    members.bury("a")
    assert (state(members), members.live()) == ("dead", ())
    assert [after for _, _, after in members.changes] == [
        "alive", "suspect", "alive", "suspect", "dead",
    ]  # fmt: skip


def test_goodbye_holds_against_late_answers_but_not_against_speech(members: Members) -> None:
    members.heard("a", 1.0, 3)
    members.note_goodbye("a", 2.0)
    members.heard("a", 2.1)
    assert state(members) == "left"
    assert members.absent() == ("b",)
    members.heard("a", 3.0, 0)
    assert state(members) == "alive"


@pytest.mark.parametrize(
    ("held", "age", "what", "incarnation", "then"),
    [
        ("alive", 2, "suspect", 2, "suspect"),
        ("alive", 2, "suspect", 1, "alive"),
        ("alive", 2, "dead", 2, "dead"),
        ("alive", 2, "left", 3, "dead"),
        ("alive", 2, "alive", 9, "alive"),
        ("suspect", 2, "alive", 2, "suspect"),
        ("suspect", 2, "alive", 3, "alive"),
        ("suspect", 2, "suspect", 2, "suspect"),
        ("suspect", 2, "dead", 2, "dead"),
        ("suspect", 2, "dead", 1, "suspect"),
        ("dead", 2, "alive", 3, "dead"),
        ("dead", 2, "suspect", 3, "dead"),
        ("left", 2, "alive", 3, "left"),
        ("alive", 2, "dead", INCARNATION_MAX + 1, "alive"),
        ("alive", 2, "revoked", 0, "revoked"),
        ("revoked", 2, "alive", 3, "revoked"),
    ],
)
def test_newer_outweighs_older_and_worse_outweighs_better(
    members: Members, held: Standing, age: int, what: Standing, incarnation: int, then: str
) -> None:
    members.heard("a", 0.0, 1)
    members.weigh(news("alive", age), 0.0, 0.0)
    if held == "revoked":
        members.weigh(news("revoked"), 0.0, 0.0)
    elif held == "left":
        members.note_goodbye("a", 0.0)
    elif held != "alive":
        members.suspect("a", "silent")
        if held == "dead":
            members.bury("a")
    members.weigh(news(what, incarnation), 100.0, 1.0)
    assert state(members) == then


def test_who_spoke_a_moment_ago_is_doubted_on_hearsay_and_not_buried(members: Members) -> None:
    members.heard("a", 10.0)
    members.weigh(news("dead", 0), 10.5, 1.0)
    assert state(members) == "suspect"


def test_hearsay_brings_nobody_to_life(members: Members) -> None:
    members.weigh(news("alive", 5), 0.0, 1.0)
    assert (state(members), members["a"].incarnation) == ("unknown", 5)


def test_what_is_revoked_stays_so_whatever_is_heard(members: Members) -> None:
    members.weigh(MemberUpdate("a", "revoked", proof=b"signed"), 0.0, 0.0)
    members.heard("a", 1.0, 5)
    members.note_goodbye("a", 2.0)
    members.refused("a", 2.0, "no")
    update = members["a"].update()
    assert (state(members), update and update.proof) == ("revoked", b"signed")


def test_a_revocation_is_of_a_key_and_the_name_goes_on_with_another(members: Members) -> None:
    members.place(news("alive", id="OLD"), "a")
    members.weigh(MemberUpdate("a", "revoked", id="OTHER", proof=b"signed"), 0.0, 0.0)
    assert state(members) != "revoked"
    members.weigh(MemberUpdate("a", "revoked", id="OLD", proof=b"signed"), 0.0, 0.0)
    assert state(members) == "revoked"
    assert not members.meet(news("alive", id="OLD"))
    assert not members.meet(news("alive"))
    assert members.meet(news("alive", id="NEW"))
    assert state(members) == "unknown"


def test_newcomers_are_met_once_alive_and_up_to_a_limit(members: Members) -> None:
    assert not members.meet(news("dead", name="c"))
    assert members.meet(news("alive", name="c"))
    assert not members.meet(news("alive", name="c"))
    assert members.place(news("alive", name="c", address="127.0.0.1:1", id="X"), "a")
    assert not members.place(news("suspect", name="c"), "a")
    assert (members["c"].address, members["c"].id) == ("127.0.0.1:1", "X")
    for number in range(MEMBERS_MAX + 10):
        members.meet(news("alive", name=f"n{number}"))
    assert len(members) == MEMBERS_MAX
    assert [one.name for one in members.view()] == sorted(one.name for one in members.view())


def test_an_address_is_changed_by_the_members_own_word_alone(members: Members) -> None:
    members.meet(news("alive", name="c"))
    assert members.place(news("alive", name="c", address="h:1"), "a")  # where to greet it first
    assert not members.place(news("alive", name="c", address="evil:1"), "b")
    assert members["c"].address == "h:1"
    assert members.place(news("alive", name="c", address="h:2"), "c")
    assert not members.place(news("alive", name="c", address="evil:1"), "b")
    assert members["c"].address == "h:2"


def test_nothing_is_told_of_who_was_never_heard_and_no_refusal_is_passed_on(
    members: Members,
) -> None:
    assert members["a"].update() is None
    members.heard("a", 0.0)
    members.refused("a", 1.0, "other settings")
    update = members["a"].update()
    assert (state(members), update and update.state) == ("refused", "alive")
    members.quarantine("a", "it lies")
    update = members["a"].update()
    assert (state(members), update and update.state) == ("quarantined", "alive")


def test_a_refused_peer_that_answers_no_more_is_dead(members: Members) -> None:
    members.refused("a", 1.0, "other settings")
    for _ in range(GREETINGS):
        assert state(members) == "refused"
        members.failed("a", 2.0, "silence")
    assert state(members) == "dead"
