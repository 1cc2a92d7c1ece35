"""Late peers in sync: who votes, on what the votes ride, and for whom a round waits."""

from __future__ import annotations

from fednode.core import events as ev
from fednode.core.policy import Activity
from fednode.core.rounds.lateness import LATE
from fednode.core.rounds.pace import AHEAD_MAX
from fednode.core.types import Report
from fednode.policies.zerodfl.exchange import ZeroDFL
from tests.unit.policies.scenes import OWN, adopted, node, said, tuned

VOTE = {LATE + "d": "20"}


def waits(policy: ZeroDFL) -> bool:
    return policy.phase is Activity.EXCHANGING


def played(*votes: str, phase: str = "done") -> ZeroDFL:
    """Return node a in its first round: b and c have finished it, and some peers vote against d."""
    policy = node(peers=tuple("bcd"), mode="sync", most=0)
    tuned(policy)
    for peer in "bc":
        policy.handle(1.0, said(peer, phase, facts=VOTE if peer in votes else {}))
    return policy


def test_a_round_does_not_wait_for_a_peer_that_most_others_let_rest() -> None:
    assert waits(played())
    assert waits(played("b")), "two of three others must name it"
    assert not waits(played("b", "c"))
    assert not waits(played("b", "c", phase="prompts"))


def test_the_peers_own_word_on_itself_counts_for_nothing() -> None:
    policy = node(peers=tuple("bcde"), mode="sync", most=0)
    tuned(policy)
    for peer in "bc":
        policy.handle(1.0, said(peer, "done", facts=VOTE))
    policy.handle(1.0, said("d", "done", number=0, facts=VOTE))
    policy.handle(1.0, said("e", "done"))
    assert waits(policy), "two of four others name it"


def test_a_vote_holds_until_the_round_that_it_names() -> None:
    policy = node(peers=tuple("bcd"), mode="sync", most=0)
    tuned(policy, 20)
    for peer in "bc":
        policy.handle(1.0, said(peer, "done", number=20, facts=VOTE))
    assert waits(policy)


def test_a_vote_that_comes_before_its_round_counts_in_it() -> None:
    policy = node(peers=tuple("bcd"), mode="sync", most=0)
    for peer in "bc":
        policy.handle(0.5, said(peer, "done", number=2, facts=VOTE))
    effects = tuned(policy)
    assert waits(policy), "round 1 has no votes of its own"
    effects = list(policy.handle(1.0, said("d", "done")))
    adopted(policy, effects)
    tuned(policy, 2)
    assert not waits(policy)


def test_votes_of_far_rounds_are_not_kept() -> None:
    policy = node(peers=tuple("bcd"), mode="sync", most=0)
    for number in range(1, 1000):
        policy.handle(0.0, said("b", "done", number=number, facts=VOTE))
    assert len(policy._pace._votes) <= AHEAD_MAX + 1


def test_a_peer_that_costs_too_much_is_named_in_rows_and_in_done() -> None:
    policy, now, named = node(peers=tuple("bcd"), mode="sync", most=0, recipients=1), 0.0, False
    for number in range(1, 9):
        (*_, tune) = policy.handle(now, ev.RoundDue(number))
        assert isinstance(tune, ev.Tune)
        report = Report(tensors=OWN, metrics={"loss": 1.0}, samples=8)
        effects = policy.handle(now + 1.0, ev.Tuned(tune.job, report))
        facts = [effect.message.facts for effect in effects if isinstance(effect, ev.Send)]
        assert len(facts) == 3
        assert all(one == facts[0] for one in facts), "each peer gets the vote"
        named = named or LATE + "d" in facts[0]
        for peer in "bc":
            policy.handle(now + 1.0, said(peer, "done", number=number))
        ended = policy.handle(now + 21.0, said("d", "done", number=number))
        adopted(policy, list(ended))
        now += 21.0
    assert named
