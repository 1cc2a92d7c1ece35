"""SWIM in large meshes and between two lists. Its single steps are transcripts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from fednode.core.events import Answer, Effect, Send
from fednode.core.members.swim import (
    CALLER_ERRANDS_MAX,
    DIGEST,
    ERRANDS_MAX,
    GREETED_MAX,
    PROBE,
    TARGET,
    RoundRobin,
    Swim,
    digest_of,
)
from fednode.core.members.table import Members
from fednode.core.settings import LAN, MembershipSettings
from fednode.core.types import MemberUpdate
from fednode.testing import frame
from tests.unit.core.scenes import only


def swim(peers: Sequence[str] = ("b", "c", "d", "e"), alive: bool = True) -> Swim:
    """Return node "a", which has heard from all its peers, or from none."""
    context = frame("local", peers=tuple(peers), mesh="mesh", fingerprint="ab", address="a:1")
    made = Swim(context, LAN, lambda phase: context.message(3, phase))
    for peer in peers if alive else ():
        made.heard(0.0, peer, 1)
    return made


def sends(effects: Sequence[Effect], phase: str = "") -> list[Send]:
    return [one for one in only(effects, Send) if phase in {"", one.message.phase}]


def test_presets_are_what_the_documents_say() -> None:
    assert (LAN.probe_interval_s, LAN.probe_timeout_s) == (0.5, 0.4)
    wan = MembershipSettings(preset="wan").timing
    assert (wan.probe_interval_s, wan.suspicion_mult) == (2.0, 6.0)
    assert LAN.suspicion_s(5) == 2.0
    assert LAN.suspicion_s(1000) == pytest.approx(6.0)
    # On a LAN, detection by whoever probes first and the suspicion are over within 5 s.
    assert LAN.probe_interval_s + 3.5 * LAN.probe_timeout_s + LAN.suspicion_s(10) < 5.0


def test_errands_are_bounded_for_each_caller_and_for_all() -> None:
    made = swim()
    errand = made._message("indirect", {TARGET: "c"})
    codes = {
        caller: [
            answer.code
            for token in range(CALLER_ERRANDS_MAX + 1)
            for answer in only(
                made.received(1.0, replace(errand, sender=caller), 100 * at + token), Answer
            )
        ]
        for at, caller in enumerate("bdefg")
    }
    assert CALLER_ERRANDS_MAX * 4 == ERRANDS_MAX
    assert codes.pop("g") == ["busy"] * (CALLER_ERRANDS_MAX + 1)
    assert set(map(tuple, codes.values())) == {("busy",)}


def test_revoked_peers_are_no_nodes_of_the_mesh() -> None:
    made = swim(["b"])
    around_s = made.around_s
    made.learn(1.0, [MemberUpdate("gone", "revoked", 0, "", "ID", b"proof")], "b")
    assert made.members["gone"].state == "revoked"
    assert (len(made.members), made.around_s) == (1, around_s)


def test_the_digest_of_a_list_says_who_lives_and_who_was_revoked() -> None:
    def digest(*changes: MemberUpdate) -> str:
        listed = {name: MemberUpdate(name, "alive", 1, id=name) for name in "abc"}
        return digest_of({**listed, **{one.name: one for one in changes}}.values())

    alike = (
        MemberUpdate("b", "suspect", 1, id="b"),
        MemberUpdate("d", "dead"),
        MemberUpdate("e", "left"),
    )
    assert all(digest(one) == digest() for one in alike)
    assert digest(MemberUpdate("d", "revoked", id="d")) == digest(
        MemberUpdate("d", "revoked", id="OLD")
    )
    others = (
        MemberUpdate("b", "dead", 1, id="b"),
        MemberUpdate("b", "alive", 2, id="b"),
        MemberUpdate("b", "alive", 1, id="another"),
        MemberUpdate("b", "revoked", 1, id="b"),
        MemberUpdate("d", "alive", 1),
    )
    assert len({digest(), *map(digest, others)}) == 1 + len(others)
    listed = [MemberUpdate(name, "alive") for name in "abc"]
    assert digest_of(listed) == digest_of(listed[::-1])


def revoke(made: Swim, name: str, id: str) -> list[Effect]:
    return made.learn(0.0, [MemberUpdate(name, "revoked", id=id, proof=b"signed")])


def refuse(made: Swim, name: str) -> str:
    made.members.refused(name, 1.0, "other settings")
    return name


@pytest.mark.parametrize(
    "change",
    [
        lambda one, other: (revoke(one, "c", "OLD"), revoke(other, "c", "NEW")),
        lambda one, other: (
            one.learn(1.0, [MemberUpdate("x", "alive", id="X")]),
            revoke(one, "x", "X"),
        ),
        lambda one, other: refuse(one, "c"),
        lambda one, other: one.members.quarantine("c", "it lies"),
        lambda one, other: (refuse(one, "c"), other.learn(1.0, [MemberUpdate("c", "alive", 7)])),
    ],
)
def test_two_nodes_that_told_each_other_their_lists_have_equal_digests(
    change: Callable[[Swim, Swim], object],
) -> None:
    one, other = swim(("c", "d")), swim(("c", "d"))
    change(one, other)
    first, second = (made._list()[1:] for made in (one, other))  # both are node "a"
    one.learn(2.0, second, "d")
    other.learn(2.0, first, "d")
    assert digest_of(one._list()) == digest_of(other._list())


def test_all_listed_members_are_greeted_a_few_in_each_interval() -> None:
    peers = [f"p{number:03}" for number in range(150)]
    made = swim(peers, alive=False)
    counts, greeted = [], list[str]()
    for at in range(4):
        found = [one.to for one in sends(made.timer(PROBE) if at else made.start(), "hello")]
        counts.append(len(found))
        greeted += found
    assert counts == [GREETED_MAX, GREETED_MAX, 150 - 2 * GREETED_MAX, 1]
    assert sorted(greeted[:150]) == peers
    assert greeted[:GREETED_MAX] == peers[:GREETED_MAX]
    calls = [made.greet([one]) for one in peers]  # all in one interval
    assert sum(len(sends(effects, "hello")) for effects in calls) == GREETED_MAX - 1


def test_greetings_begin_behind_the_node_s_own_name_and_skip_who_was_heard() -> None:
    names = [f"p{number:03}" for number in range(GREETED_MAX + 3)]
    context = frame("local", peers=tuple(names), name="p001x")
    made = Swim(context, LAN, lambda phase: context.message(3, phase))
    assert [one.to for one in sends(made.start())] == names[2:-1]
    made.heard(0.0, names[-1], 1)
    assert [one.to for one in sends(made.timer(PROBE), "hello")] == names[:2]


def test_every_member_has_its_turn_before_any_has_two() -> None:
    members = Members("bcdefg")
    for name in "bcdefg":
        members.heard(name, 1.0, 1)
    seeds = iter(range(100))
    turns = RoundRobin(lambda: random.Random(next(seeds)))
    orders = [tuple(turns.next(members.live()) for _ in "bcdefg") for _ in range(4)]
    assert all(sorted(order) == list("bcdefg") for order in orders)
    assert len(set(orders)) > 1  # each turn is shuffled anew
    first = turns.next(members.live())
    gone, *others = (name for name in "bcdefg" if name != first)
    members.suspect(gone, "silent")
    members.bury(gone)
    assert sorted(turns.next(members.live()) for _ in others) == others
    assert RoundRobin(lambda: random.Random(1)).next(()) == ""


def test_a_node_that_still_greets_does_not_send_its_list() -> None:
    made = swim([f"p{number:03}" for number in range(70)], alive=False)
    made.start()
    asked = replace(swim()._message("members", {DIGEST: "0"}), sender="p001")
    assert not made.received(9.0, asked, 1)
    made.timer(PROBE)
    assert made.received(9.0, asked, 1)
