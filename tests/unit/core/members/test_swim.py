"""SWIM's clockwork, one node at a time: probes, errands, suspicion, news."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import pytest

from fednode.core.events import (
    Answer,
    CancelTimer,
    Delivered,
    Effect,
    Introduce,
    Send,
    SetTimer,
    Undelivered,
)
from fednode.core.members.swim import (
    DIGEST,
    ERRANDS_MAX,
    GREETED_MAX,
    PROBE,
    SLOWNESS_MAX,
    SUSPECT,
    SYNC,
    TARGET,
    Gossip,
    RoundRobin,
    Swim,
    digest_of,
)
from fednode.core.members.table import INCARNATION_MAX, Members
from fednode.core.settings import LAN, MembershipSettings
from fednode.core.types import Message, Phase, Update
from fednode.testing import frame
from tests.unit.core.scenes import only


def errand_for(target: str) -> Message:
    """Return b's request to ping a node."""
    return Message(
        mesh="mesh", fingerprint="ab", policy="local", sender="b", round=1, phase="indirect",
        facts={TARGET: target},
    )  # fmt: skip


def swim(peers: Sequence[str] = ("b", "c", "d", "e"), alive: bool = True) -> Swim:
    """Return node "a", which has heard from all its peers, or from none."""
    context = frame("local", peers=tuple(peers), mesh="mesh", fingerprint="ab", address="a:1")
    made = Swim(context, LAN, lambda phase: context.message(3, phase))
    for peer in peers if alive else ():
        made.heard(0.0, peer, 1)
    made._gossip = Gossip(made.members)
    made.members.changes.clear()
    return made


def sends(effects: Sequence[Effect], phase: str = "") -> list[Send]:
    return [one for one in only(effects, Send) if phase in {"", one.message.phase}]


def unanswered(send: Send, code: str = "unreachable") -> Undelivered:
    return Undelivered(send.to, send.message, code, "silence")


def test_presets_are_what_the_documents_say() -> None:
    assert (LAN.probe_interval_s, LAN.probe_timeout_s) == (0.5, 0.4)
    wan = MembershipSettings(preset="wan").timing
    assert (wan.probe_interval_s, wan.suspicion_mult) == (2.0, 6.0)
    assert LAN.suspicion_s(5) == 2.0
    assert LAN.suspicion_s(1000) == pytest.approx(6.0)
    # On a LAN, detection by whoever probes first and the suspicion are over within 5 s.
    assert LAN.probe_interval_s + 3.5 * LAN.probe_timeout_s + LAN.suspicion_s(10) < 5.0


def test_each_interval_one_member_is_pinged_and_every_member_in_turn() -> None:
    made = swim()
    for _ in range(3):
        targets = []
        for _ in range(4):
            effects = made.timer(PROBE)
            assert SetTimer(PROBE, LAN.probe_interval_s) in effects
            (ping,) = sends(effects)
            assert (ping.message.phase, ping.limit_s) == ("ping", LAN.probe_timeout_s)
            targets.append(ping.to)
        assert sorted(targets) == ["b", "c", "d", "e"]


def test_who_is_absent_is_greeted_in_turn_besides() -> None:
    made = swim(alive=False)
    greeted = [one.to for _ in range(4) for one in sends(made.timer(PROBE), "hello")]
    assert sorted(greeted) == ["b", "c", "d", "e"]


def test_a_silent_member_is_suspect_only_when_nobody_else_gets_through() -> None:
    made = swim()
    (ping,) = sends(made.timer(PROBE))
    asked = sends(made.sent(1.0, unanswered(ping)), "indirect")
    assert len(asked) == 3
    assert {one.message.facts[TARGET] for one in asked} == {ping.to}
    assert ping.to not in {one.to for one in asked}
    for one in asked[:2]:
        assert not made.sent(1.5, unanswered(one, "silent"))
        assert made.members[ping.to].state == "alive"
    effects = made.sent(1.6, unanswered(asked[2], "silent"))
    assert effects == [SetTimer(SUSPECT + ping.to, LAN.suspicion_s(5))]
    assert made.members[ping.to].state == "suspect"
    made.timer(SUSPECT + ping.to)
    assert made.members[ping.to].state == "dead"


@pytest.mark.parametrize("code", ["busy", "refused", "stale", "invalid", "silent", "unreachable"])
def test_a_helper_that_answers_anything_but_ok_did_not_help(code: str) -> None:
    made = swim()
    (ping,) = sends(made.timer(PROBE))
    asked = sends(made.sent(1.0, unanswered(ping)), "indirect")
    found = [effect for one in asked for effect in made.sent(1.5, unanswered(one, code))]
    wait = LAN.suspicion_s(5) * (1 + (made.slowness - 1) / (SLOWNESS_MAX - 1))
    assert SetTimer(SUSPECT + ping.to, wait) in found
    assert made.members[ping.to].state == "suspect"


def test_a_peer_that_speaks_and_cannot_be_reached_costs_one_errand_an_interval() -> None:
    made = swim()
    made.timer(PROBE)
    said = Send("b", made._say("prompts"))
    asked = []
    for _ in range(10):
        asked += sends(made.sent(1.0, unanswered(said)), "indirect")
        made.heard(1.0, "b")
    assert len(asked) == 3
    assert made.members["b"].state == "alive"
    made.timer(PROBE)
    assert len(sends(made.sent(1.5, unanswered(said)), "indirect")) == 3


def test_a_message_that_never_left_says_nothing_of_a_peer() -> None:
    made = swim()
    first = sends(made.timer(PROBE))[0]
    asked = sends(made.sent(1.0, unanswered(first)), "indirect")
    for one in asked:
        made.sent(1.5, unanswered(one, "silent"))
    assert made.members[first.to].state == "suspect"
    for code in ("busy", "invalid"):
        local = replace(unanswered(first, code), sent=False)
        assert made.sent(1.6, local) == []
        assert made.members[first.to].state == "suspect"
    made.timer(SUSPECT + first.to)
    assert made.members[first.to].state == "dead"


@pytest.mark.parametrize("code", ["busy", "invalid"])
def test_an_errand_that_never_left_helps_nobody(code: str) -> None:
    made = swim()
    asking = errand_for("c")
    (ping,) = sends(made.received(1.0, asking, 11))
    answer = Answer(11, "silent", "c does not answer")
    assert answer in made.sent(1.2, replace(unanswered(ping, code), sent=False))


def test_a_suspect_that_answers_busy_is_suspect_no_more() -> None:
    made = swim(("b",))
    (ping,) = sends(made.timer(PROBE))
    made.sent(1.0, unanswered(ping))
    assert made.members["b"].state == "suspect"
    assert CancelTimer(SUSPECT + "b") in made.sent(1.2, unanswered(ping, "busy"))
    assert made.members["b"].state == "alive"
    made.sent(2.0, unanswered(ping))
    made.timer(SUSPECT + "b")
    assert made.members["b"].state == "dead"


def test_one_helper_that_gets_through_is_enough_and_makes_this_node_doubt_itself() -> None:
    made = swim()
    (ping,) = sends(made.timer(PROBE))
    first, *others = sends(made.sent(1.0, unanswered(ping)), "indirect")
    made.sent(1.5, Delivered(first.to, first.message))
    for one in others:
        made.sent(1.6, unanswered(one, "silent"))
    assert made.members[ping.to].state == "alive"
    assert made.slowness == 2
    (patient,) = sends(made.timer(PROBE))
    assert patient.limit_s == 2 * LAN.probe_timeout_s


def test_a_node_whose_helpers_are_silent_too_probes_less_often_until_it_gets_answers() -> None:
    made = swim()
    (ping,) = sends(made.timer(PROBE))
    helpers = sends(made.sent(1.0, unanswered(ping)), "indirect")
    for one in helpers:
        made.sent(2.0, unanswered(one))
    assert made.slowness == 1 + len(helpers)
    assert SetTimer(PROBE, 4 * LAN.probe_interval_s) in made.timer(PROBE)
    for _ in range(9):
        made.sent(3.0, unanswered(helpers[0]))
    assert made.slowness == SLOWNESS_MAX
    made.members.suspect("c", "silent")
    assert made._suspicion_s() == 2 * LAN.suspicion_s(5)
    for _ in range(9):
        made.sent(4.0, Delivered("c", ping.message))
    assert made.slowness == 1


def test_where_there_is_nobody_to_ask_silence_is_suspect_at_once() -> None:
    made = swim(("b",))
    (ping,) = sends(made.timer(PROBE))
    assert SetTimer(SUSPECT + "b", LAN.suspicion_s(2)) in made.sent(1.0, unanswered(ping))


def test_a_sign_of_life_ends_suspicion_and_a_return_from_the_dead_compares_lists() -> None:
    made = swim(("b",))
    (ping,) = sends(made.timer(PROBE))
    made.sent(1.0, unanswered(ping))
    assert CancelTimer(SUSPECT + "b") in made.heard(1.1, "b", 4)
    assert made.members["b"].state == "alive"
    made.sent(50.0, unanswered(ping))
    made.timer(SUSPECT + "b")
    (back,) = sends(made.heard(59.0, "b", 5))
    assert (back.message.phase, list(back.message.facts)) == ("members", [DIGEST])


@pytest.mark.parametrize(("event", "code"), [("Delivered", "ok"), ("unreachable", "silent")])
def test_an_errand_is_answered_when_the_ping_has_ended(event: str, code: str) -> None:
    made = swim()
    asking = errand_for("c")
    (ping,) = sends(made.received(1.0, asking, 11))
    assert (ping.to, ping.message.phase) == ("c", "ping")
    assert made.received(1.0, replace(asking, sender="d"), 12) == []  # the same ping serves both
    ended = Delivered("c", ping.message) if event == "Delivered" else unanswered(ping)
    answers = only(made.sent(1.2, ended), Answer)
    assert [(one.token, one.code) for one in answers] == [(11, code), (12, code)]


def test_errands_to_nobody_and_too_many_are_answered_at_once() -> None:
    made = swim()
    strange = errand_for("zoe")
    (answer,) = made.received(1.0, strange, 1)
    assert isinstance(answer, Answer)
    assert answer.code == "silent"
    own = replace(strange, facts={TARGET: "a"})
    assert made.received(1.0, own, 2) == [Answer(2, "ok")]
    for token in range(ERRANDS_MAX):
        made.received(1.0, replace(strange, facts={TARGET: "c"}), token)
    (last,) = only(made.received(1.0, replace(strange, facts={TARGET: "d"}), 99), Answer)
    assert last.code == "busy"


def test_a_rumour_of_our_death_is_contradicted_with_a_higher_incarnation() -> None:
    made = swim()
    made.learn(1.0, [Update("a", "suspect", 4)])
    (ping,) = sends(made.timer(PROBE))
    assert Update("a", "alive", 5, "a:1") in ping.message.members
    made.learn(2.0, [Update("a", "dead", 3)])
    assert made.news.incarnation == 5
    made.learn(2.0, [Update("a", "alive", 9)])  # from an earlier life
    assert made.news.incarnation == 9


@pytest.mark.parametrize("state", ["suspect", "dead"])
def test_a_rumour_of_our_own_incarnation_is_contradicted_too(state: Literal["suspect"]) -> None:
    made = swim()
    made.learn(1.0, [Update("a", "alive", 4)])
    made.learn(2.0, [Update("a", state, 4)])
    (ping,) = sends(made.timer(PROBE))
    assert Update("a", "alive", 5, "a:1") in ping.message.members
    # An older rumour is no news: each peer that knows incarnation 5 knows better.
    made.learn(3.0, [Update("a", state, 4), Update("a", state, INCARNATION_MAX + 1)])
    assert made.news.incarnation == 5


def test_a_peer_that_cannot_reach_the_node_is_told_its_address() -> None:
    made, why = swim(), "cannot send to a:9"
    (hello,) = sends(made.sent(1.0, Delivered("b", made._say(Phase.PING), note=why)))
    assert (hello.to, hello.message.phase, made.news in hello.message.members) == ("b", "hello", 1)
    assert made.sent(1.0, Delivered("b", hello.message, note=why)) == [], "once for each ping"


def test_peers_take_the_address_from_the_node_itself_alone() -> None:
    made = swim()
    moved = Update("b", "alive", 0, "b:2")
    made.learn(0.0, [replace(moved, address="b:1")], "b")
    assert made.learn(1.0, [moved], "c") == []
    assert made.learn(1.0, [moved], "b") == [Introduce("b", "b:2")]
    assert made.members["b"].address == "b:2"


def test_a_new_certificate_is_told_with_a_higher_incarnation() -> None:
    made = swim()
    made.learn(1.0, [Update("a", "alive", 0, proof=b"new")])
    (ping,) = sends(made.timer(PROBE))
    assert Update("a", "alive", 1, "a:1", proof=b"new") in ping.message.members


def test_a_peer_that_answers_and_whose_certificate_is_not_held_is_asked_for_it() -> None:
    made = swim(alive=False)
    (hello,) = sends(made.greet(["b"]))
    assert only(made.sent(0.0, Delivered(hello.to, hello.message)), Send) == []  # insecure mesh
    made.learn(1.0, [Update("a", "alive", 0, proof=b"own")])
    made.learn(1.0, [Update("c", "alive", 0, "c:1", "C", b"held")], "c")
    for name, asks in {"c": 0, "d": 1}.items():
        (hello,) = sends(made.greet([name]))
        answered = made.sent(1.0, Delivered(hello.to, hello.message))
        assert len(sends(answered, Phase.MEMBERS)) == asks


def test_a_quarantined_peer_that_answers_is_sent_nothing() -> None:
    made = swim()
    made.learn(1.0, [Update("a", "alive", 0, proof=b"own")])
    made.members.quarantine("b", "it sent too much that is wrong")
    sent = Delivered("b", made._say(Phase.PING))
    assert only(made.sent(1.0, sent), Send) == []
    (refused,) = only(made.received(1.0, errand_for("b"), 7), Answer)
    assert refused.code == "silent"


def test_revoked_peers_are_no_nodes_of_the_mesh() -> None:
    made = swim(["b"])
    around_s = made.around_s
    made.learn(1.0, [Update("gone", "revoked", 0, "", "ID", b"proof")], "b")
    assert made.members["gone"].state == "revoked"
    assert (len(made.members), made.around_s) == (1, around_s)


def test_a_newcomer_is_introduced_greeted_and_told_of() -> None:
    made = swim(("b",))
    effects = made.learn(1.0, [Update("n", "alive", 0, "127.0.0.1:9", "ID", b"chain")])
    assert effects[0] == Introduce("n", "127.0.0.1:9")
    (hello,) = sends(effects, "hello")
    assert hello.to == "n"
    made.sent(1.1, Delivered("n", hello.message))
    (ping,) = [one for _ in range(2) for one in sends(made.timer(PROBE), "ping") if one.to == "b"]
    assert Update("n", "alive", 0, "127.0.0.1:9", "ID", b"chain") in ping.message.members


@pytest.mark.parametrize(("incarnation", "asked"), [(4, False), (5, True), (6, True)])
def test_hearsay_that_a_member_is_back_is_a_reason_to_ask_it(incarnation: int, asked: bool) -> None:
    made = swim(("b", "c"))
    made.learn(9.0, [Update("b", "dead", 5)])
    assert made.members["b"].state == "dead"
    hellos = sends(made.learn(9.0, [Update("b", "alive", incarnation)], "c"), "hello")
    assert [one.to for one in hellos] == (["b"] if asked else [])
    assert made.members["b"].state == "dead"
    assert sends(made.learn(9.0, [Update("c", "alive", 9)], "b")) == []


def test_lists_are_compared_by_a_digest_with_somebody_now_and_then() -> None:
    made = swim()
    effects = made.timer(SYNC)
    assert SetTimer(SYNC, LAN.sync_interval_s) in effects
    (send,) = sends(effects)
    assert [one.name for one in send.message.members] == ["a"]
    for facts in (send.message.facts, {}):  # its list is the same; it asks for nothing
        assert not made.received(9.0, replace(send.message, sender="b", facts=facts), 1)


def test_a_difference_is_answered_with_the_lists_of_both_once_an_interval() -> None:
    made, other = swim(), swim()
    other.members.suspect("c", "silent")
    other.members.bury("c")
    (asked,) = sends(other.timer(SYNC))
    question = replace(asked.message, sender="b")
    (answer,) = sends(made.received(9.0, question, 1))
    assert [one.name for one in answer.message.members] == ["a", "b", "c", "d", "e"]
    assert not made.received(9.0, question, 1)
    made.timer(PROBE)
    assert made.received(9.0, question, 1)
    (back,) = sends(other.received(9.0, replace(answer.message, sender="d"), 1))
    assert (back.to, dict(back.message.facts)) == ("d", {})
    assert Update("c", "dead") in back.message.members
    made.timer(PROBE)
    assert not made.received(9.0, replace(back.message, sender="b"), 1)


def test_the_digest_of_a_list_says_who_lives_and_who_was_revoked() -> None:
    def digest(*changes: Update) -> str:
        listed = {name: Update(name, "alive", 1, id=name) for name in "abc"}
        return digest_of({**listed, **{one.name: one for one in changes}}.values())

    alike = (Update("b", "suspect", 1, id="b"), Update("d", "dead"), Update("e", "left"))
    assert all(digest(one) == digest() for one in alike)
    assert digest(Update("d", "revoked", id="d")) == digest(Update("d", "revoked", id="OLD"))
    others = (
        Update("b", "dead", 1, id="b"),
        Update("b", "alive", 2, id="b"),
        Update("b", "alive", 1, id="another"),
        Update("b", "revoked", 1, id="b"),
        Update("d", "alive", 1),
    )
    assert len({digest(), *map(digest, others)}) == 1 + len(others)
    listed = [Update(name, "alive") for name in "abc"]
    assert digest_of(listed) == digest_of(listed[::-1])


def revoke(made: Swim, name: str, id: str) -> list[Effect]:
    return made.learn(0.0, [Update(name, "revoked", id=id, proof=b"signed")])


def refuse(made: Swim, name: str) -> str:
    made.members.refused(name, 1.0, "other settings")
    return name


@pytest.mark.parametrize(
    "change",
    [
        lambda one, other: (revoke(one, "c", "OLD"), revoke(other, "c", "NEW")),
        lambda one, other: (one.learn(1.0, [Update("x", "alive", id="X")]), revoke(one, "x", "X")),
        lambda one, other: refuse(one, "c"),
        lambda one, other: one.members.quarantine("c", "it lies"),
        lambda one, other: (refuse(one, "c"), other.learn(1.0, [Update("c", "alive", 7)])),
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


def test_a_peer_that_takes_nothing_now_is_not_suspect() -> None:
    made = swim()
    (ping,) = sends(made.timer(PROBE))
    assert not sends(made.sent(1.0, unanswered(ping, "busy")))
    assert made.members[ping.to].state == "alive"


def test_what_others_say_of_a_listed_peer_does_not_take_its_listed_address_away() -> None:
    made = swim(("b", "c"))
    # Hearsay of a listed peer comes with its id and without an address (fednode.identity.roster).
    hearsay = Update("b", "alive", 0, "", "AAAA-B", b"proof")
    assert [one for one in made.learn(1.0, [hearsay]) if isinstance(one, Introduce)] == []
    own = replace(hearsay, address="10.0.0.2:7100")
    assert made.learn(2.0, [own])[0] == Introduce("b", "10.0.0.2:7100")
