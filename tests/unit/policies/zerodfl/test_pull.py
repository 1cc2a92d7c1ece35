"""ZeroDFL as the released code has it: receivers draw whom to ask."""

from __future__ import annotations

from fednode.core.events import PeerDown, PeerUp, SetTimer, TimerFired, Undelivered
from fednode.core.policy import RESEND
from fednode.policies.zerodfl.exchange import ZeroDFL
from tests.unit.policies.scenes import adopted, node, origin, said, sends, tuned


def asked(policy: ZeroDFL, number: int = 1) -> list[str]:
    effects = tuned(policy, number)
    assert {phase for _, phase in sends(effects)} <= {"want"}
    return [peer for peer, _ in sends(effects)]


def pull(**settings: object) -> ZeroDFL:
    return node(strategy="pull", **settings)  # type: ignore[arg-type]


def test_sources_are_asked_and_their_rows_merged_when_all_answered() -> None:
    policy = pull()
    peers = asked(policy)
    assert 1 <= len(peers) <= 4
    for peer in peers[:-1]:
        assert policy.handle(0.0, said(peer, "answer")) == []
    snapshot = adopted(policy, policy.handle(0.0, said(peers[-1], "answer")))
    found = origin(snapshot)
    assert {one[0] for one in found} == set(peers)
    received = snapshot.policy.data["received"]
    assert isinstance(received, dict)
    assert {peer: count for peer, count in received.items() if count} == {
        peer: sum(one[0] == peer for one in found) for peer in peers
    }


def test_answers_that_nobody_asked_for_change_nothing() -> None:
    policy = pull(peers=("b", "c"))
    policy.handle(0.0, PeerDown("c"))
    assert asked(policy) == ["b"]
    assert policy.handle(0.0, said("c", "answer")) == []
    assert {one[0] for one in origin(adopted(policy, policy.handle(0.0, said("b", "answer"))))} == {
        "b"
    }


def test_the_released_code_never_picks_the_last_row() -> None:
    rows: dict[str, set[str]] = {"include": set(), "exclude": set()}
    for last_row, seen in rows.items():
        policy = pull(peers=("b",), most=200, last_row=last_row)
        for number in range(1, 60):
            assert asked(policy, number) == ["b"]
            answer = said("b", "answer", number=number)
            seen |= {one[1] for one in origin(adopted(policy, policy.handle(0.0, answer)))}
    assert rows == {"include": {"0", "1", "2", "3"}, "exclude": {"0", "1", "2"}}


def test_who_asks_gets_the_tuned_rows_at_once_or_when_there_are_some() -> None:
    policy = pull()
    assert policy.handle(0.0, said("b", "want")) == []
    effects = tuned(policy)
    assert ("b", "answer") in sends(effects)
    assert sends(policy.handle(0.0, said("c", "want"))) == [("c", "answer")]


def test_in_sync_a_question_of_a_later_round_waits_for_that_round() -> None:
    policy = pull(mode="sync", peers=("b",))
    tuned(policy)
    assert sends(policy.handle(0.0, said("b", "want", number=2))) == []
    adopted(policy, policy.handle(0.0, said("b", "answer")))
    assert ("b", "answer") in sends(tuned(policy, 2))


def test_an_answer_that_got_lost_is_sent_again_in_whatever_round() -> None:
    policy = pull(peers=("b",))
    tuned(policy)
    (send,) = policy.handle(0.0, said("b", "want"))
    adopted(policy, policy.handle(0.0, said("b", "answer")))
    tuned(policy, 2)
    lost = Undelivered("b", send.message, "unreachable", "")  # type: ignore[union-attr]
    (timer,) = policy.handle(0.0, lost)
    assert timer == SetTimer(RESEND, 0.5)
    assert sends(policy.handle(0.0, TimerFired(RESEND))) == [("b", "answer")]
    assert sends(policy.handle(0.0, TimerFired(RESEND))) == []


def test_who_asked_and_was_taken_for_dead_is_answered_when_it_is_back() -> None:
    policy = pull(peers=("b", "c"))
    tuned(policy)
    (send,) = policy.handle(0.0, said("b", "want"))
    policy.handle(0.0, PeerDown("b"))
    assert policy.handle(0.0, Undelivered("b", send.message, "unreachable", "")) == []  # type: ignore[union-attr]
    assert sends(policy.handle(0.0, PeerUp("b"))) == [("b", "answer")]


def test_a_source_that_dies_is_replaced_by_another() -> None:
    policy = pull(peers=("b", "c"))
    policy.handle(0.0, PeerDown("c"))
    assert asked(policy) == ["b"]
    policy.handle(0.0, PeerUp("c"))
    assert sends(policy.handle(0.0, PeerDown("b"))) == [("c", "want")]
    found = origin(adopted(policy, policy.handle(0.0, said("c", "answer"))))
    assert {one[0] for one in found} == {"c"}


def test_a_question_that_cannot_be_delivered_goes_to_another() -> None:
    policy = pull(peers=("b", "c"), rows_shared=1)
    effects = tuned(policy)
    ((peer, _),) = sends(effects)
    other = {"b": "c", "c": "b"}[peer]
    message = effects[0].message  # type: ignore[union-attr]
    again = policy.handle(0.0, Undelivered(peer, message, "unreachable", ""))
    assert sends(again) == [(other, "want")]


def test_the_last_round_asks_nobody() -> None:
    policy = pull(most=1)
    effects = tuned(policy)
    assert sends(effects) == []
    assert origin(adopted(policy, effects)) == ["a0", "a1", "a2", "a3"]
