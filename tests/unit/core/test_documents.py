"""Settings documents at one node: which is newer, who is told, and when one begins."""

from __future__ import annotations

from fednode.core.documents import (
    AHEAD_MAX,
    FAILED,
    HELD_MAX,
    NONE,
    PASS_ON_S,
    PAST_MAX,
    Documents,
    order,
)
from fednode.core.events import Effect, Offer, Send, Switch
from fednode.core.types import Document, Message, Terms
from tests.unit.core.scenes import message, only, recorded


def document(number: int, digit: str = "5", start: int = 10) -> Document:
    return Document(number, f"{digit * 4}{number:028x}", start, f"{number}{digit}".encode())


ONE, TWO = document(1, "4"), document(2)
SMALLER, LARGER = document(2, "1"), document(2, "9")


def known(
    *held: Document, accepted: tuple[Document, ...] = (), force: Document = NONE
) -> Documents:
    documents = Documents(force)
    for one in held:
        assert only(documents.offered(one), Offer)
    for one in accepted:
        documents.decided(one.digest, True)
    return documents


def say(phase: str) -> Message:
    return message(phase, "a")


def sent(effects: list[Effect]) -> list[tuple[str, Document | None]]:
    return [(one.to, one.message.document) for one in only(effects, Send)]


def test_the_higher_number_is_newer_then_the_smaller_digest() -> None:
    assert sorted([TWO, LARGER, ONE, SMALLER, NONE], key=order) == [NONE, ONE, LARGER, TWO, SMALLER]


def test_a_node_says_nothing_before_it_knows_a_document() -> None:
    assert Documents().terms is None
    assert known(ONE).terms == Terms("", "", ONE.digest)
    both = known(ONE, TWO, accepted=(ONE,))
    assert both.terms == Terms("", ONE.digest, TWO.digest)


def test_a_document_is_offered_once_and_only_a_newer_one() -> None:
    documents = known(TWO, force=ONE)
    assert not documents.offered(TWO), "known"
    assert not documents.offered(ONE), "in force"
    assert not documents.offered(document(1, "9")), "older than the one in force"
    assert documents.offered(document(1, "1")), "the other proposal of the same number wins"
    assert not documents.offered(document(AHEAD_MAX + 2)), "then nobody could propose a newer one"
    assert documents.offered(document(AHEAD_MAX + 1))


def test_a_node_keeps_the_newest_documents_and_those_that_it_accepted() -> None:
    documents = known(ONE, accepted=(ONE,))
    for number in range(2, HELD_MAX + 10):
        documents.offered(document(number))
    assert len(documents.held) == HELD_MAX + 1
    assert documents.next == ONE
    assert not documents.offered(document(2)), "too old to keep: nobody is asked about it"


def test_the_newest_accepted_document_is_the_next() -> None:
    documents = known(ONE, SMALLER, LARGER, accepted=(ONE, LARGER))
    assert documents.next == LARGER
    documents.decided(SMALLER.digest, True)
    assert documents.next == SMALLER
    documents.decided(SMALLER.digest, False)
    assert documents.next == LARGER, "the operator may think again"


def test_a_decision_on_what_is_not_known_is_told() -> None:
    assert recorded(known(ONE).decided(TWO.digest, True)) == [FAILED]


def test_a_document_goes_to_a_peer_that_knows_another_and_ever_more_seldom() -> None:
    documents = known(ONE)
    documents.heard("b", None)
    assert sent(documents.pass_on(0.0, "b", say)) == [("b", ONE)]
    assert not documents.pass_on(PASS_ON_S / 2, "b", say)
    assert sent(documents.pass_on(PASS_ON_S, "b", say)) == [("b", ONE)], "the first may be lost"
    assert not documents.pass_on(2.5 * PASS_ON_S, "b", say)
    assert documents.pass_on(3 * PASS_ON_S, "b", say)
    documents.offered(TWO)
    assert sent(documents.pass_on(3 * PASS_ON_S, "b", say)) == [("b", TWO)], "a newer one, at once"
    documents.heard("b", Terms(knows=TWO.digest))
    assert not documents.pass_on(99.0, "b", say)


def test_two_nodes_that_know_different_proposals_tell_each_other() -> None:
    one, other = known(SMALLER), known(LARGER)
    one.heard("b", other.terms)
    other.heard("a", one.terms)
    assert sent(one.pass_on(0.0, "b", say)) == [("b", SMALLER)]
    assert sent(other.pass_on(0.0, "a", say)) == [("a", LARGER)]
    one.offered(LARGER)
    other.offered(SMALLER)
    assert one.newest == other.newest == SMALLER


def test_a_document_begins_at_its_round_or_where_the_run_is_over() -> None:
    documents = known(ONE)
    assert documents.due(10, False, ()) is None, "nobody has accepted it"
    documents.decided(ONE.digest, True)
    assert documents.due(9, False, ()) is None
    assert documents.due(10, False, ()) == ONE
    assert documents.due(3, True, ()) == ONE


def test_a_node_that_is_behind_begins_with_most_of_those_that_accepted() -> None:
    documents = known(ONE, accepted=(ONE,))
    documents.heard("b", Terms(force=ONE.digest))
    assert documents.due(3, False, ["b"]) == ONE
    documents.heard("c", Terms(accepts=ONE.digest))
    assert documents.due(3, False, ["b", "c"]) is None, "one of two may lie"
    documents.heard("d", Terms(force=ONE.digest))
    assert documents.due(3, False, ["b", "c", "d"]) == ONE
    assert documents.due(3, False, ["c"]) is None, "those that live count"
    documents.heard("e", Terms(knows=ONE.digest))
    assert documents.following(ONE, "bcde") == {"b", "c", "d"}


def test_a_switch_is_made_once_and_ends_in_the_new_document() -> None:
    documents = known(ONE, TWO, accepted=(ONE,))
    assert documents.switch(ONE) == [Switch(ONE)]
    assert documents.due(10, True, ()) is None, "it is under way"
    documents.begun(ONE.digest, 10)
    assert documents.force == ONE
    assert set(documents.held) == {TWO.digest}
    assert documents.terms == Terms(ONE.digest, "", TWO.digest)


def test_a_document_under_which_the_node_cannot_run_counts_as_refused() -> None:
    documents = known(ONE, accepted=(ONE,))
    documents.switch(ONE)
    assert recorded(documents.failed(ONE.digest, "no space left")) == [FAILED]
    assert documents.refused == {ONE.digest}
    assert documents.due(10, True, ()) is None


def test_who_follows_whom() -> None:
    documents = known(TWO, accepted=(TWO,), force=ONE)
    documents.heard("ahead", Terms(force=TWO.digest))
    documents.heard("behind", Terms(accepts=ONE.digest))
    documents.heard("other", Terms(force="a" * 32, accepts="b" * 32))
    documents.heard("same", Terms(force=ONE.digest))
    names = ("ahead", "behind", "other", "same", "silent")
    assert [documents.follows(name) for name in names] == ["ahead", "behind", "", "", ""]
    assert not Documents().follows("silent"), "no document is no common document"


def test_two_nodes_under_different_documents_are_named() -> None:
    documents = known(TWO, force=ONE)
    documents.heard("b", Terms(force=TWO.digest))
    assert documents.apart("b", "a") == "'b' runs under settings 2, and 'a' under settings 1"
    documents.begun(TWO.digest, 10)
    documents.heard("b", Terms(force=ONE.digest))
    assert documents.apart("b", "a") == "'b' runs under settings 1, and 'a' under settings 2"
    documents.heard("b", Terms(force="a" * 32))
    assert "settings that 'a' does not know" in documents.apart("b", "a")
    assert not documents.apart("c", "a"), "it has said nothing yet"
    documents.heard("c", None)
    assert "'c' runs under the settings of its own files" in documents.apart("c", "a")
    documents.heard("b", Terms(force=TWO.digest))
    assert not documents.apart("b", "a")


def test_some_documents_of_before_are_remembered_without_their_proof() -> None:
    documents = Documents()
    for number in range(1, PAST_MAX + 4):
        documents.offered(document(number))
        documents.begun(document(number).digest, number)
    assert [one.number for one in documents.past.values()] == list(range(3, PAST_MAX + 3))
    assert not any(one.proof for one in documents.past.values())


def test_how_a_peer_stands_to_the_settings_in_force() -> None:
    documents = known(TWO, LARGER, document(3), force=ONE, accepted=(TWO,))
    documents.begun(TWO.digest, 10)
    said = {
        "runs": Terms(force=TWO.digest),
        "accepted": Terms(ONE.digest, TWO.digest, TWO.digest),
        "undecided": Terms(ONE.digest, "", document(3).digest),
        "unheard": Terms(ONE.digest, "", ONE.digest),
        "newer": Terms(document(3).digest, "", document(3).digest),
    }
    for peer, terms in said.items():
        documents.heard(peer, terms)
    assert {peer: documents.standing(peer, TWO) for peer in [*said, "silent"]} == {
        peer: peer for peer in [*said, "silent"]
    }
    settled = documents.settled(said)
    assert (settled.number, settled.accepted, settled.newer) == (2, 0, {"newer": (3, False)})
    documents.decided(document(3).digest, False)
    assert documents.settled(said).newer == {"newer": (3, True)}
    documents.decided(document(3).digest, True)
    assert (documents.settled(said).newer, documents.settled(said).accepted) == ({}, 3)
    assert documents.settled(["nobody"]).standing == {}
