"""The checkers are checked: each bug that is planted here is found within ten seeds.

A bug is a patch to shipped code, as a hasty change would make it. The scenario is the shipped one,
with the meshes that the bug can show in. The search begins at the seed that is noted with the bug,
which finds it at once. If a change of the code moves the find, the search goes on for a few seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fednode.core import agreement, gate, kernel, policy
from fednode.core import reputation as reputation
from fednode.core.events import (
    Adopt,
    Adopted,
    AdoptFailed,
    Answer,
    RoundDue,
    Send,
    SetTimer,
    Tune,
)
from fednode.core.members import swim
from fednode.core.members import table as membership
from fednode.core.policy import IDLE
from fednode.core.rounds import averaging, catchup, exchange, gossip
from fednode.core.rounds import engine as rounds
from fednode.core.types import Tensors
from fednode.lab.commands.simulate import load
from fednode.lab.sim import setup
from fednode.lab.simulate import checkers
from fednode.lab.simulate import scenario as scenarios
from fednode.lab.simulate.checkers import Violation
from fednode.lab.simulate.scenario import Scenario, draw, play
from fednode.wire import codec
from tests.contract.seeds import seeds

FILE = Path(__file__).resolve().parent.parent.parent / "configs/sim/everything.yaml"
SEEDS = 10
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Bug:
    """A way to break the code; policies: those of the meshes that it is looked for in.

    liars: kinds of hostile nodes, if not those of the file. seed: where the search begins.
    only: no other checker finds it; each checker has such a bug.
    """

    plant: Callable[[Patch], None]
    found_by: tuple[str, ...]
    policies: tuple[str, ...] = ()
    mode: str = ""
    liars: tuple[str, ...] | None = None
    heal_s: float = 300.0
    seed: int = 1
    only: bool = False


ENDLESS = ("AllEndsWell", "WaitsWithinDeadlines")
AVERAGES = ("promptfl", "fedtpg", "fedclip", "fedmaple")
BUGS: dict[str, Bug] = {}
Plant = Callable[[Patch], None]


def bug(name: str, *found_by: str, **more: Any) -> Callable[[Plant], Plant]:
    """Register a bug under a name; more: as of Bug."""

    def register(plant: Plant) -> Plant:
        BUGS[name] = Bug(plant, found_by, **more)
        return plant

    return register


@bug("gate", "AdoptsWhatIsSound", policies=AVERAGES, seed=3, only=True)
def gate_lets_everything_in(patch: Patch) -> None:
    """No check of schema, numbers or norm, nor of what was made of them."""
    patch.setattr(gate.Gate, "_content", lambda *_: gate.TAKEN)
    patch.setattr(policy.NodeContext, "norm_fault", lambda *_: "")


@bug("numbers", "AdoptsWhatIsSound", policies=AVERAGES, seed=43)
def numbers_are_not_looked_at(patch: Patch) -> None:
    patch.setattr(Tensors, "finite", lambda self: True)
    patch.setattr(policy.NodeContext, "norm_fault", lambda *_: "")


@bug("restart", "ResumesWhereItWas", policies=("zerodfl",), only=True)
def a_restart_forgets_the_pool(patch: Patch) -> None:
    original = gossip.Gossip.__init__

    def begin(self: Any, method: Any, state: Any) -> None:
        original(self, method, state)
        self._claimed = {}

    patch.setattr(gossip.Gossip, "__init__", begin)


@bug("commit", "AllEndsWell", policies=AVERAGES, seed=11)
def a_failed_commit_is_forgotten(patch: Patch) -> None:
    original = kernel.Kernel.step

    def step(self: Any, now: float, event: Any) -> Any:
        return [] if isinstance(event, AdoptFailed) else original(self, now, event)

    patch.setattr(kernel.Kernel, "step", step)


@bug("order", "TellsOnlyWhatIsStored", "OneTuningAtATime", "AllEndsWell", policies=AVERAGES)
def the_next_round_begins_before_the_commit(patch: Patch) -> None:
    original = rounds.Rounds._finish

    def finish(self: Any, used: Any) -> Any:
        effects = original(self, used)
        self.step = IDLE
        return [*effects, *self._begin(RoundDue(self.now.number + 1))]

    patch.setattr(rounds.Rounds, "_finish", finish)


@bug("far", "RoundsGoForward", "MovesByProof", policies=(*AVERAGES, "plan", "diprompt"), seed=9)
def a_far_round_is_believed(patch: Patch) -> None:
    patch.setattr(catchup, "quorum", lambda *_: 1)


@bug("furthest", "RoundsGoForward", "MovesByProof", policies=("zerodfl",))
def the_furthest_leads_zerodfl(patch: Patch) -> None:
    original = gossip.Gossip._close

    def close(self: Any) -> Any:
        self._current = max(self._current, max(self._claimed.values(), default=0))
        return original(self)

    patch.setattr(gossip.Gossip, "_close", close)


@bug("absent", "AllEndsWell", seed=71)
def the_absent_are_never_greeted(patch: Patch) -> None:
    patch.setattr(membership.Members, "absent", lambda self: [])


@bug("arrival", "AllAgree", policies=AVERAGES, mode="sync", seed=9)
def contributions_are_merged_as_they_came(patch: Patch) -> None:
    """In the order of arrival, and each node takes its own as it was before it travelled."""
    original = averaging.Averaging.merge

    def merge(self: Any, now: Any, given: Any) -> Any:
        own = [one for one in given if one.sender == self.context.name]
        rest = [one for one in given if one.sender != self.context.name]
        return original(self, now, [*own, *rest])

    patch.setattr(averaging.Averaging, "merge", merge)


@bug("twice", "AnswersEachOnce", seed=7)
def messages_are_answered_twice(patch: Patch) -> None:
    original = kernel.Kernel._receive

    def receive(self: Any, now: float, message: Any, token: int) -> Any:
        effects = original(self, now, message, token)
        again = message.phase == "hello" and self.policy.state().round % 7 == 3
        return [*effects, Answer(token, "ok")] if again else effects

    patch.setattr(kernel.Kernel, "_receive", receive)


@bug("never", "AnswersEachOnce", seed=2, only=True)
def a_message_without_a_link_is_never_answered(patch: Patch) -> None:
    original = kernel.Kernel._refuse

    def refuse(self: Any, now: float, message: Any, token: int, verdict: Any) -> Any:
        effects = original(self, now, message, token, verdict)
        silent = verdict[0] == "stale"
        return [one for one in effects if not (silent and isinstance(one, Answer))]

    patch.setattr(kernel.Kernel, "_refuse", refuse)


@bug("faults", "HonestStayFree", policies=AVERAGES, seed=89, only=True)
def a_message_without_a_link_is_a_fault(patch: Patch) -> None:
    """A message to a node that was paused meanwhile is a fault, and each fault counts for three."""
    patch.setattr(kernel, "FAULTS", frozenset({*reputation.FAULTS, "topology"}))
    fault = reputation.Reputation.fault
    patch.setattr(
        reputation.Reputation, "fault", lambda *given: max(fault(*given) for _ in range(3))
    )


@bug("retry", "AllEndsWell", seed=11)
def a_failed_tuning_is_never_tried_again(patch: Patch) -> None:
    original = kernel.Kernel._again

    def again(self: Any, kind: str, reason: str, timer: str) -> Any:
        return [one for one in original(self, kind, reason, timer) if timer != kernel.RETRY][:1]

    patch.setattr(kernel.Kernel, "_again", again)


@bug("adopted", "RoundsGoForward", "OneTuningAtATime")
def a_round_is_adopted_twice(patch: Patch) -> None:
    original = kernel.Kernel.step

    def step(self: Any, now: float, event: Any) -> Any:
        effects = original(self, now, event)
        if isinstance(event, Adopted) and event.snapshot.policy.round % 5 == 4:
            return [Adopt(event.snapshot), *effects]
        return effects

    patch.setattr(kernel.Kernel, "step", step)


@bug("dead", *ENDLESS, policies=(*AVERAGES, "plan"), mode="sync", seed=3)
def the_dead_are_waited_for(patch: Patch) -> None:
    """Nobody is ever buried, and no deadline ends the wait."""
    patch.setattr(membership.Members, "bury", lambda self, name: None)
    patch.setattr(rounds.Rounds, "_give_up", lambda self, now: [])
    patch.setattr(membership.Members, "suspect", lambda self, name, reason: None)


@bug("lost", *ENDLESS, policies=(*AVERAGES, "plan"), mode="sync")
def what_was_lost_is_not_sent_again(patch: Patch) -> None:
    patch.setattr(exchange.Exchange, "retransmit", lambda *_: [])
    patch.setattr(rounds.Rounds, "_give_up", lambda self, now: [])


@bug("life", "ResumesWhereItWas", seed=14)
def a_restart_goes_back_a_round(patch: Patch) -> None:
    """A node that comes back believes that it is where it was when it wrote last but one."""
    original: Any = kernel.kernel_of

    def kernel_of(*given: Any, **named: Any) -> Any:
        held = given[5]
        if held is not None and held.policy.round > 3:
            held = replace(held, policy=replace(held.policy, round=held.policy.round - 1))
        return original(*given[:5], held, *given[6:], **named)

    patch.setattr(setup, "kernel_of", kernel_of)


@bug("word", "MovesByProof", policies=(*AVERAGES, "plan"), mode="sync", liars=(), seed=3, only=True)
def one_word_is_enough(patch: Patch) -> None:
    """No liar is there to use it: what is taken over is true, and only too few claimed it."""
    patch.setattr(catchup, "quorum", lambda *_: 1)


@bug(
    "deadline",
    "WaitsWithinDeadlines",
    policies=AVERAGES,
    mode="sync",
    heal_s=3600.0,
    seed=3,
    only=True,
)
def a_deadline_is_put_off(patch: Patch) -> None:
    """A stage waits for three deadlines in place of one."""
    original, seen = rounds.Rounds._give_up, dict[tuple[str, int, str], int]()

    def give_up(self: Any, now: float) -> Any:
        key = self.context.name, self.now.number, self.now.stage
        seen[key] = seen.get(key, 0) + 1
        if seen[key] % 3:
            return [SetTimer(policy.DEADLINE, self.context.rounds.deadline_s)]
        return original(self, now)

    patch.setattr(rounds.Rounds, "_give_up", give_up)


@bug("text", "SaysOnlyText", liars=("foreign-text",), only=True)
def texts_are_taken_as_they_come(patch: Patch) -> None:
    """Frames may hold any text: no name, fact or address is looked at."""
    patch.setattr(codec, "_fault", lambda *_: "")


@bug(
    "proof",
    "MovesByProof",
    "RoundsGoForward",
    policies=("zerodfl",),
    mode="sync",
    liars=("far-word",),
)
def a_word_moves_zerodfl(patch: Patch) -> None:
    """How far a peer says that it is counts, without rows that prove it; and one word is enough."""

    def round_of(self: Any, peer: str) -> int:
        found: int = self._claimed.get(peer, 0)
        return found

    patch.setattr(gossip.Gossip, "_round_of", round_of)
    patch.setattr(gossip, "quorum", lambda *_: 1)


@bug("again", "RepeatsItselfSlowly", policies=AVERAGES, liars=("again-flood",), only=True)
def requests_are_answered_without_end(patch: Patch) -> None:
    """Each request is answered at once, though the timer has not fired since the last one."""
    original = exchange.Exchange.repeat

    def repeat(self: Any, peer: str, since: int) -> Any:
        self._repeated.clear()
        return original(self, peer, since)

    patch.setattr(exchange.Exchange, "repeat", repeat)


@bug("unsaid", "NobodyDiffersUnsaid", policies=AVERAGES, mode="sync", liars=("equivocate",))
def nobody_compares(patch: Patch) -> None:
    """A liar tells each node something else, and no node looks at what the others hold."""
    patch.setattr(agreement.Agreement, "heard", lambda *_: None)


@bug("itself", "SpeaksInItsName", only=True)
def a_node_compares_lists_with_itself(patch: Patch) -> None:
    """A node draws itself, too, when it draws a member."""
    original = swim.Swim.timer

    def timer(self: Any, name: str) -> Any:
        itself = [self._ask_list(self._context.name)] if name == swim.PROBE else []
        return [*original(self, name), *itself]

    patch.setattr(swim.Swim, "timer", timer)


@bug("passed", "SpeaksInItsName", seed=3, only=True)
def a_list_is_passed_on_as_it_came(patch: Patch) -> None:
    """A node that is asked for its list answers in the name of the node that asked."""
    original: Any = swim.Swim._lists

    def lists(self: Any, message: Any) -> Any:
        return [
            replace(one, message=replace(one.message, sender=message.sender))
            for one in original(self, message)
        ]

    patch.setattr(swim.Swim, "_lists", lists)


@bug("timers", "KeepsWithinBounds", seed=2, only=True)
def each_message_leaves_a_timer(patch: Patch) -> None:
    """Each message gets a timer of its own, which nobody cancels."""
    original = kernel.Kernel._receive

    def receive(self: Any, now: float, message: Any, token: int) -> Any:
        return [*original(self, now, message, token), SetTimer(f"kernel.seen.{token}", 60.0)]

    patch.setattr(kernel.Kernel, "_receive", receive)


@bug("past", "KeepsWithinBounds", only=True)
def a_timer_is_set_for_the_past(patch: Patch) -> None:
    """The seconds until the next round are counted from its beginning, and may have passed."""
    original = kernel.Kernel._adopted

    def adopted(self: Any, now: float, *given: Any) -> Any:
        waited = self._pace._began - now
        return [*original(self, now, *given), SetTimer("kernel.interval", waited)]

    patch.setattr(kernel.Kernel, "_adopted", adopted)


@bug("job", "OneTuningAtATime", policies=AVERAGES, only=True)
def a_job_is_handed_out_twice(patch: Patch) -> None:
    original = kernel.Kernel.step

    def step(self: Any, now: float, event: Any) -> Any:
        effects = original(self, now, event)
        return [*effects, *(one for one in effects if isinstance(one, Tune))]

    patch.setattr(kernel.Kernel, "step", step)


@bug("early", "TellsOnlyWhatIsStored", policies=AVERAGES, mode="sync", only=True)
def a_round_is_told_before_it_is_stored(patch: Patch) -> None:
    """With the commit of a round goes the first message of the round after the next."""
    original = kernel.Kernel.step

    def step(self: Any, now: float, event: Any) -> Any:
        effects = original(self, now, event)
        if not any(isinstance(one, Adopt) for one in effects):
            return effects
        early = self.context.message(self.policy.state().round + 1, "prompts")
        return [*effects, *(Send(peer, early) for peer in sorted(self._linked))]

    patch.setattr(kernel.Kernel, "step", step)


@bug("stored", "RoundsGoForward", policies=AVERAGES, mode="sync", only=True)
def a_round_is_stored_again(patch: Patch) -> None:
    """Once each node stores a round a second time, after the disk has taken it."""
    original, stored = kernel.Kernel.step, set[str]()

    def step(self: Any, now: float, event: Any) -> Any:
        effects, name = original(self, now, event), self.context.name
        if not isinstance(event, Adopted) or name in stored:
            return effects
        stored.add(name)
        return [*effects, Adopt(event.snapshot)]

    patch.setattr(kernel.Kernel, "step", step)


def narrowed(bug: Bug) -> tuple[Scenario, tuple[Any, ...]]:
    """Return the shipped scenario with the meshes that the bug is looked for in."""
    scenario, configs = load(FILE)
    pairs = [
        (replace(mesh, modes=(bug.mode,)) if bug.mode else mesh, config)
        for mesh, config in zip(scenario.meshes, configs, strict=True)
        if not bug.policies or mesh.policy["name"] in bug.policies
        if not bug.mode or bug.mode in mesh.modes
    ]
    meshes, kept = zip(*pairs, strict=True)
    liars = scenario.liars if bug.liars is None else bug.liars
    return replace(scenario, meshes=meshes, heal_s=bug.heal_s, liars=liars), kept


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found(name: str, monkeypatch: Patch) -> None:
    """Without the bug, nothing is found in the same run."""
    found_bug = BUGS[name]
    scenario, configs = narrowed(found_bug)
    with monkeypatch.context() as planted:
        found_bug.plant(planted)
        case, found = searched(scenario, configs, found_bug.seed)
        print(f"{name}: seed {case.seed}: {str(found)[:200]}")
        assert found.checker in found_bug.found_by, found
        if found_bug.only:
            others = [one for one in checkers.ALL if one.__name__ not in found_bug.found_by]
            planted.setattr(scenarios, "ALL", others)
            assert play(scenario, case).violation is None
    assert play(scenario, case).violation is None


def searched(
    scenario: Scenario, configs: Sequence[Any], first: int
) -> tuple[scenarios.ScenarioCase, Violation]:
    """Return the first run that breaks a promise, and the promise."""
    for seed in range(first, first + SEEDS):
        case = draw(scenario, configs, seed)
        found = play(scenario, case).violation
        if found is not None:
            return case, found
    pytest.fail(f"nothing found at seeds {first} to {first + SEEDS - 1}: note a seed that finds it")


def test_each_checker_finds_a_bug_that_no_other_finds() -> None:
    alone = {checker for bug in BUGS.values() if bug.only for checker in bug.found_by}
    # test_older.py has the bugs that OlderIsTrue finds: they need restored backups.
    assert alone | {"OlderIsTrue"} == {one.__name__ for one in checkers.ALL}


@pytest.mark.parametrize("seed", seeds(2, 30))
def test_nothing_is_found_where_nothing_is_planted(seed: int) -> None:
    scenario, configs = load(FILE)
    assert play(scenario, draw(scenario, configs, seed + 1)).violation is None
