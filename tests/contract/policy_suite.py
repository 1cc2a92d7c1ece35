"""What every policy promises (node/fednode/core/policy.py), as tests to inherit.

player.py plays the host: it feeds a policy events, checks every effect as it comes, and answers
Tune, Adopt and Send as a host would. Nothing here knows which policy it is.
"""

from __future__ import annotations

import dataclasses
import random

import pytest

from fednode.core import events as ev
from fednode.core.policy import Activity
from fednode.core.rounds.catchup import STATE
from fednode.core.rounds.exchange import participants, period
from fednode.core.settings import RoundSettings
from fednode.core.types import MEASURE, Job, Tensors
from fednode.testing.methods import CONTEXT, Shapes
from tests.contract.player import (
    MODES,
    PEERS,
    Case,
    Player,
    accepted,
    any_event,
    far_event,
    report,
    up,
)
from tests.contract.seeds import seeds

LIVES = 4
"""So many runs of a node the test of far rounds plays for a seed."""

__all__ = ["CONTEXT", "MODES", "Case", "PolicyContract", "Shapes"]


class PolicyContract:
    """Inherit and give a fixture `case`."""

    def test_it_names_itself(self, case: Case) -> None:
        kind = case.kind
        assert kind.name
        assert {*kind.modes} <= {*MODES}
        assert isinstance(kind.shared_state, bool)
        assert dataclasses.is_dataclass(kind.config_type)
        assert case.mode in kind.modes
        assert kind.settings_fault(case.config, case.context().rounds, "photo") == ""
        begun = case.start().state()
        assert (begun.round, begun.tensors, begun.tuned) == (0, case.initial, Tensors())
        assert case.start().activity == "idle"

    @pytest.mark.parametrize("seed", seeds(1, 20))
    def test_total_and_orderly_in_any_order_of_events(self, case: Case, seed: int) -> None:
        chance = random.Random(seed)
        player = case.player()
        for _ in range(300):
            player.feed(any_event(case, chance, player))
            assert player.policy.activity in set(Activity)

    @pytest.mark.parametrize("seed", seeds(1, 10))
    def test_no_claim_moves_it_beyond_what_contributions_prove(self, case: Case, seed: int) -> None:
        """A node leaves out rounds only up to rounds.max, and where most members contributed.

        Any messages come in any order, of near and far rounds, with arrays and without. To leave
        out rounds takes all three other members, in the round before the one that it adopts or
        beyond it; in a method whose nodes contribute to some rounds only, at most so many rounds
        before it. Two are enough while the third is gone.
        """
        chance, most = random.Random(seed), case.context().rounds.max
        slack = period(len(PEERS) + 1, participants(case.config))
        for _ in range(LIVES):
            player, proved, live, before = up(case.player()), dict.fromkeys(PEERS, 0), {*PEERS}, 0
            while before < most:
                event = far_event(case, chance, player)
                match event:
                    case ev.Received(message=message) if message.tensors and message.phase != STATE:
                        proved[message.sender] = max(proved[message.sender], message.round)
                    case ev.PeerUp(peer=peer):
                        live.add(peer)
                    case ev.PeerDown(peer=peer):
                        live.discard(peer)
                    case _:
                        pass
                for effect in player.feed(event):
                    if not isinstance(effect, ev.Adopt):
                        continue
                    number = effect.snapshot.policy.round
                    voices = sum(proved_round >= number - slack for proved_round in proved.values())
                    assert number <= most
                    assert number <= before + 1 or voices >= (3 if live == {*PEERS} else 2)
                    before = number

    @pytest.mark.parametrize("seed", seeds(1, 5))
    def test_pure_equal_events_give_equal_effects_and_states(self, case: Case, seed: int) -> None:
        first, two = case.player(), case.player()
        chance = random.Random(seed)
        for step in range(200):
            event = any_event(case, chance, first)
            random.seed(step)  # the global generator has no say
            assert first.feed(event) == two.feed(event)
            assert first.policy.state() == two.policy.state()

    def test_a_state_that_was_returned_never_changes(self, case: Case) -> None:
        player = up(case.player())
        player.run_round(1, accepted(player.policy, [case.from_peer("b", 1)]))
        before = player.policy.state()
        number, tensors, data = before.round, before.tensors, repr(before.data)
        for later in (2, 3):
            heard = [case.from_peer(peer, later) for peer in PEERS]
            player.run_round(later, accepted(player.policy, heard))
        assert (before.round, before.tensors, repr(before.data)) == (number, tensors, data)

    def test_rounds_end_whatever_peers_do(self, case: Case) -> None:
        """Silent peers, lost messages and deaths cost time, never the round."""
        player = up(case.player())
        for number in range(1, 5):
            before = len(player.sent)
            player.begin(number)
            for send in player.sent[before:]:
                if player.adopt is None:
                    lost = ev.Undelivered(send.to, send.message, "unreachable", "nobody")
                    player.feed(lost)
            player.wait_out()
            player.adopted()
            assert player.policy.round == player.policy.state().round == number

    def test_alone_a_round_needs_no_timer(self, case: Case) -> None:
        player = case.player()
        player.feed(ev.RoundDue(1))
        player.train()
        assert player.adopt is not None
        player.adopted()
        assert player.policy.activity == "idle"
        if case.guard.merged_rise is None:  # even one's own aggregators change one's prompts
            assert player.policy.state().tuned == player.policy.state().tensors

    def test_the_death_of_all_peers_ends_the_waiting(self, case: Case) -> None:
        player = up(case.player())
        player.feed(ev.RoundDue(1))
        player.tuned()
        for peer in PEERS:
            player.feed(ev.PeerDown(peer))
        player.train()
        assert player.adopt is not None

    def test_a_round_adopts_what_it_tuned_or_merged_and_measured(self, case: Case) -> None:
        player = up(case.player())
        player.feed(ev.RoundDue(1))
        player.wait_out()
        assert player.adopt is not None
        stored = player.adopt.snapshot
        numbers = sum(array.size for array in case.initial.values())
        assert stored.policy.tuned != case.initial or not numbers
        if case.kind.shared_state:  # measured after the merge
            measured, merged = (
                report(ev.Tune(Job(round=1, stage=MEASURE, tensors=tensors, seed=0))).metrics
                for tensors in (stored.policy.tuned, stored.policy.tensors)
            )
            assert stored.metrics == {"loss": 1.0, **measured}
            if stored.policy.tuned != stored.policy.tensors:
                assert case.guard.merged_rise is not None
                assert measured["validation_loss"] < merged["validation_loss"]
        else:
            jobs = [effect for effect in player.effects if isinstance(effect, ev.Tune)]
            assert [tune.job.measure for tune in jobs] == [False] * (len(jobs) - 1) + [True]
            expected = report(jobs[-1])
            assert stored.policy.tuned == expected.tensors
            assert stored.policy.carry == expected.carry
            assert stored.metrics == expected.metrics

    def test_a_failed_tuning_changes_nothing_and_the_round_can_be_run_again(
        self, case: Case
    ) -> None:
        player = up(case.player())
        player.feed(ev.RoundDue(1))
        assert player.tune is not None
        first = player.tune.job
        before = player.policy.state()
        player.feed(ev.TuneFailed(first, "no memory"))
        assert player.policy.activity == "idle"
        assert player.policy.state() == before
        player.feed(ev.RoundDue(1))
        assert player.tune.job == first

    def test_a_failed_commit_leaves_it_waiting_for_the_next_try(self, case: Case) -> None:
        player = up(case.player())
        player.feed(ev.RoundDue(1))
        player.tuned()
        player.wait_out()
        assert player.adopt is not None
        adopt = player.adopt
        assert player.feed(ev.AdoptFailed(adopt, "the disk is full")) == []
        assert player.policy.activity == "adopting"
        assert player.feed(ev.RoundDue(2)) == []
        player.feed(ev.Adopted(adopt.snapshot))
        assert player.policy.activity == "idle"

    def test_timers_of_an_earlier_round_do_nothing(self, case: Case) -> None:
        player = up(case.player())
        names: set[str] = set()
        for number in (1, 2):
            player.feed(ev.RoundDue(number))
            player.tuned()
            names |= set(player.timers)
            player.wait_out()
            player.adopted()
        before = player.policy.state()
        for name in sorted(names | {"policy.never-set"}):
            after = player.feed(ev.TimerFired(name))
            assert all(isinstance(effect, ev.Send) for effect in after)
        assert player.policy.state() == before
        player.feed(ev.RoundDue(3))
        for name in sorted(names):
            after = player.feed(ev.TimerFired(name))
            assert not any(isinstance(effect, ev.Adopt) for effect in after)

    @pytest.mark.parametrize("died_after", [1, 2, 3])
    def test_restart_faithful(self, case: Case, died_after: int) -> None:
        """A node restored from what it adopted does what the one that never stopped does."""
        original = up(case.player())
        for number in range(1, died_after + 1):
            original.run_stages(number, case)
        # What was heard after the commit is lost with the crash: store once more, then compare.
        number = died_after + 1
        original.run_round(number)
        again = up(Player(case.restore(original.policy.state()), case.sits_out))
        assert again.policy.state() == original.policy.state()
        for later in (number + 1, number + 2):
            marks = len(original.effects), len(again.effects)
            original.run_stages(later, case)
            again.run_stages(later, case)
            # A node that starts again asks its peers to repeat themselves, once.
            did = [effect for effect in again.effects[marks[1] :] if not _asks(effect)]
            assert original.effects[marks[0] :] == did
            assert original.policy.state() == again.policy.state()

    def test_its_own_messages_pass_its_own_check(self, case: Case) -> None:
        player = up(case.player())
        for number in (1, 2, 3):
            player.run_round(number)
        assert all(not player.policy.fault(send.message) for send in player.sent)

    def test_what_is_no_message_of_it_has_a_sentence(self, case: Case) -> None:
        policy = case.start()
        assert policy.fault(case.from_peer("b", 1, "nonsense"))
        wrong = Tensors({next(iter(case.shapes)): [[1.0]]})
        assert policy.fault(dataclasses.replace(case.from_peer("b", 1), tensors=wrong))

    def test_what_it_cannot_work_with_is_a_sentence(self, case: Case) -> None:
        for mode in MODES:
            said = case.kind.settings_fault(case.config, RoundSettings(mode=mode), "photo")
            assert said.startswith(("rounds.mode is ", "policy.") if said else "")
            assert said or mode in case.kind.modes


def _asks(effect: ev.Effect) -> bool:
    return isinstance(effect, ev.Send) and effect.message.phase == "again"
