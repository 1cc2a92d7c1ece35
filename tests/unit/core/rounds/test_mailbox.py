"""The messages of mesh-wide rounds by value: which are kept, pending, lost and sent again."""

from __future__ import annotations

from fednode.core.rounds.mailbox import WINDOW, Mailbox
from fednode.core.types import Message
from fednode.testing import frame

NODE = frame("promptfl")


def own(number: int, stage: str = "prompts") -> Message:
    return NODE.message(number, stage)


def of(peer: str, number: int, stage: str = "prompts") -> Message:
    return frame("promptfl", name=peer).message(number, stage)


def begun(number: int, span: int = 1) -> Mailbox:
    """Return a mailbox in a round."""
    mail = Mailbox()
    mail.span = span
    mail.begin(number)
    return mail


# In -----------------------------------------------------------------------------------------------


def test_messages_of_this_round_and_of_the_next_ones_are_kept_for_their_stage() -> None:
    for span in (1, 3):
        mail = begun(5, span)
        for number in range(1, 20):
            mail.take(of("b", number), 5)
        kept = [number for number in range(20) if mail.heard(number, "prompts")]
        assert kept == list(range(5, 5 + WINDOW * span + 1))


def test_contributions_come_sorted_by_sender_and_apart_by_stage() -> None:
    mail = begun(1)
    for one in (of("d", 1), of("b", 1), of("c", 1, "aggregators")):
        mail.take(one, 1)
    assert list(mail.heard(1, "prompts").items()) == [("b", of("b", 1)), ("d", of("d", 1))]
    assert list(mail.heard(1, "aggregators")) == ["c"]


def test_a_new_round_drops_what_was_received_for_older_ones() -> None:
    mail = begun(1)
    for number in (1, 2):
        mail.take(of("b", number), 1)
    mail.begin(2)
    assert mail.heard(1, "prompts") == {}
    assert list(mail.heard(2, "prompts")) == ["b"]


def test_the_newest_round_of_a_peer_never_goes_back_and_counts_far_messages() -> None:
    mail = begun(1)
    assert mail.round_of("b") == 0
    for number in (2, 90, 3):
        mail.take(of("b", number), 1)
    assert mail.round_of("b") == 90


# Out ----------------------------------------------------------------------------------------------


def test_a_message_is_pending_until_its_peer_has_it() -> None:
    mail = begun(1)
    mail.say(own(1), "bc")
    assert set(mail.pending) == {("b", 1, "prompts"), ("c", 1, "prompts")}
    mail.settle("b", own(1))
    assert set(mail.pending) == {("c", 1, "prompts")}
    mail.settle("c", own(2))  # of a round that was not said
    assert set(mail.pending) == {("c", 1, "prompts")}


def test_a_lost_message_is_sent_again_once_while_it_is_pending() -> None:
    mail = begun(1)
    mail.say(own(1), "bcd")
    assert [mail.lose(peer, own(1)) for peer in "dcb"] == [True, True, True]
    assert not mail.lose("e", own(1)), "e was never told"
    mail.settle("c", own(1))
    assert mail.resend() == [("b", own(1)), ("d", own(1))]
    assert mail.resend() == []


def test_nothing_is_pending_for_a_peer_that_has_gone() -> None:
    mail = begun(1)
    mail.say(own(1), "bc")
    mail.lose("b", own(1))
    mail.drop("b")
    assert set(mail.pending) == {("c", 1, "prompts")}
    assert mail.resend() == []


def test_a_peer_that_is_back_gets_what_it_missed_in_order_and_only_once() -> None:
    mail = begun(2)
    mail.say(own(2), "b")
    mail.say(own(2, "aggregators"), "b")
    mail.begin(3)
    mail.say(own(3), "b")
    missed = [own(2, "aggregators"), own(2), own(3)]
    assert mail.again("c", 0) == missed
    assert mail.again("c", 0) == [], "they are under way"
    assert mail.again("d", 3) == [own(3)]
    assert mail.again("b", 0) == [], "still pending for b"


def test_own_messages_of_as_many_rounds_are_kept_as_a_node_may_sit_out() -> None:
    for span in (1, 4):
        mail = begun(1, span)
        for number in range(1, 10):
            mail.begin(number)
            mail.say(own(number), ["b"])
        mail.begin(10)
        assert [one.round for one in mail.again("c", 0)] == list(range(10 - span, 10))
        assert {number for _, number, _ in mail.pending} == set(range(10 - span, 10))
