"""The operator changes peers.yaml, and the table of members follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.events import (
    Answer,
    CancelTimer,
    Delivered,
    Effect,
    Introduce,
    Relisted,
    Send,
)
from fednode.core.members.listing import UNLISTED, relisted
from fednode.core.members.swim import SUSPECT, Swim
from fednode.core.types import Update
from tests.unit.core.members.test_swim import errand_for, swim, unanswered
from tests.unit.core.scenes import only


def entry(name: str, address: str = "", id: str = "") -> Update:
    return Update(name, "alive", 0, address, id)


def change(node: Swim, *news: Update, gone: tuple[str, ...] = ()) -> list[Effect]:
    return relisted(node, 0.0, Relisted(news, gone))


def test_a_new_peer_is_greeted_at_its_address() -> None:
    node = swim(("b",))
    effects = change(node, entry("c", "c:1", "C"))
    assert only(effects, Introduce)[-1] == Introduce("c", "c:1")
    (hello,) = only(effects, Send)
    assert (hello.to, hello.message.phase) == ("c", "hello")
    assert effects.index(hello) == len(effects) - 1
    assert (node.members["c"].state, node.members["c"].id) == ("unknown", "C")


def test_a_peer_that_is_gone_is_waited_for_and_greeted_no_more() -> None:
    node = swim(("b", "c"))
    assert CancelTimer(SUSPECT + "c") in change(node, gone=("c", "nobody"))
    assert (node.members["c"].state, node.members["c"].reason) == ("left", UNLISTED)
    assert node.members.live() == ("b",)
    assert node.members.absent() == ()
    assert node.members.remaining() == {"b"}
    # Listed again, it is greeted, whatever it knows of this node.
    (hello,) = only(change(node, entry("c", "c:2")), Send)
    assert hello.to == "c"
    node.heard(1.0, "c", 1)
    assert node.members.live() == ("b", "c")


def test_the_address_of_the_file_holds_until_the_peer_tells_another() -> None:
    node = swim(("b",))
    node.learn(0.0, [entry("b", "b:1", "B")], "b")
    effects = change(node, entry("b", "b:2", "B2"))
    assert only(effects, Introduce)[-1] == Introduce("b", "b:2")
    assert node.members["b"].id == "B2"
    # What it said before changes nothing; what it says anew does.
    assert not only(node.learn(1.0, [entry("b", "b:1", "B2")], "b"), Introduce)
    said = node.learn(1.0, [entry("b", "b:3", "B2")], "b")
    assert only(said, Introduce) == [Introduce("b", "b:3")]


def test_another_id_alone_moves_nobody_and_brings_back_a_name_that_was_revoked() -> None:
    node = swim(("b",))
    node.learn(0.0, [entry("b", "b:1", "B")], "b")
    assert only(change(node, entry("b", "", "B2")), Introduce) == [Introduce("b", "b:1")]
    node.learn(0.0, [replace(entry("b", "", "B2"), state="revoked")])
    assert node.members["b"].state == "revoked"
    change(node, entry("b", "", "B3"))
    assert node.members["b"].state == "unknown"


@pytest.mark.parametrize("code", ["ok", "refused", "busy", "unreachable"])
def test_an_answer_to_what_was_sent_before_brings_nobody_back(code: str) -> None:
    node = swim(("b", "c"))
    (hello,) = only(node.hellos(["c"]), Send)
    change(node, gone=("c",))
    ended = Delivered("c", hello.message) if code == "ok" else unanswered(hello, code)
    assert not only(node.sent(1.0, ended), Send)
    assert node.members["c"].state == "left"
    assert node.members.remaining() == {"b"}


def test_nobody_has_an_errand_to_a_peer_that_is_gone() -> None:
    node = swim(("b", "c"))
    change(node, gone=("c",))
    (answer,) = node.received(1.0, errand_for("c"), 7) or []
    assert isinstance(answer, Answer)
    assert (answer.token, answer.code) == (7, "silent")


def test_a_node_that_moves_tells_nobody_who_is_gone() -> None:
    node = swim(("b", "c"))
    change(node, gone=("c",))
    assert [one.to for one in only(node.move("a:2"), Send)] == ["b"]
    assert not node.own.unknown_to("c")


def test_the_end_of_a_quarantine_brings_nobody_back_who_is_gone() -> None:
    node = swim(("b", "c"))
    node.members.quarantine("c", "it lies")
    change(node, gone=("c",))
    node.members.release("c")
    assert node.members["c"].state == "left"


def test_if_nobody_answers_at_the_address_of_the_file_the_peer_is_called_where_it_was() -> None:
    node = swim(("b", "c"))
    node.learn(0.0, [entry("b", "b:1", "B")], "b")
    (hello,) = only(change(node, entry("b", "b:2", "B")), Send) or only(node.hellos(["b"]), Send)
    effects = [one for _ in range(2) for one in node.sent(1.0, unanswered(hello))]
    assert only(effects, Introduce) == [Introduce("b", "b:1")]
