"""SWIM: who is in the mesh and who answers, at a constant load for each node (Das et al., 2002).

Each probe_interval_s the node pings one live member, in shuffled round-robin. If the member does
not answer within probe_timeout_s, `indirect` others are asked to ping it. If none of them gets
through, the member is suspect. It is dead if it does not contradict in time. A member that hears
that it is suspect contradicts with a higher incarnation. A member that speaks and that this node
cannot reach is no suspect: the node warns, and tells that member in its answers. News travels on
these messages. Now and then two nodes compare their lists (lists.py). A node that seems to be at
fault itself waits longer before it doubts others (health.py). Each interval one absent member is
greeted: so the parts of a cut mesh meet. At its start a node greets all members. The phases on the
wire stand in phases.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from fednode.core.events import (
    Answer,
    CancelTimer,
    Delivered,
    Effect,
    Introduce,
    Record,
    Send,
    SetTimer,
    Undelivered,
)
from fednode.core.members import lists
from fednode.core.members.errands import Errands, Probe
from fednode.core.members.gossip import Gossip
from fednode.core.members.health import Health
from fednode.core.members.own import Own
from fednode.core.members.phases import Phase
from fednode.core.members.reachability import become
from fednode.core.members.table import ABSENT, GONE, LIVE, Members
from fednode.core.members.turns import Greetings, Rota
from fednode.core.policy import NodeContext
from fednode.core.settings import Timing
from fednode.core.types import Message, Update

PROBE: Final = "kernel.probe"
SYNC: Final = "kernel.sync"
SUSPECT: Final = "kernel.suspect."
TARGET: Final = "target"
"""Fact of an "indirect" message: the member to ping."""
HELPERS: Final = 3
"""Number of members that are asked to ping a member that does not answer, as in SWIM's paper."""
INDIRECT_LIMIT: Final = 2.5
"""Time limit of an indirect ping, in units of probe_timeout_s."""


class Swim:
    """Membership of one node; see the file's header.

    The kernel takes changes of state from `members.changes`.
    """

    def __init__(self, context: NodeContext, timing: Timing, say: Callable[[str], Message]) -> None:
        """Begin. say: returns a message of a phase, with the node's round and its contents."""
        self.members = Members(context.peers)
        self.health = Health()
        self._context = context
        self._say = say
        self._timing = timing
        self.own = Own(context)
        self._period = 0
        self._rota = Rota(self.members, LIVE, lambda: self._random("probe"))
        self._absentees = Rota(self.members, ABSENT, lambda: self._random("greet"))
        self.greetings = Greetings(self.members)
        self._compared = -1  # the interval in which this node last sent entries of its list
        self._probes: dict[str, Probe] = {}
        self._asked: dict[str, int] = {}  # by peer: the interval when helpers were last asked
        self._errands = Errands()
        self._gossip = Gossip(self.members)

    @property
    def around_s(self) -> float:
        """Return the time in which every live member speaks to this node at least once."""
        count = len(self.members) + 1
        return self._timing.suspicion_s(count) + 2 * count * self._timing.probe_interval_s

    # The clockwork --------------------------------------------------------------------------------

    def start(self) -> list[Effect]:
        """Return the first greetings and set the timers."""
        clocks: list[Effect] = [
            SetTimer(PROBE, self._timing.probe_interval_s),
            SetTimer(SYNC, self._timing.sync_interval_s),
        ]
        return [*clocks, *self.hellos(self.greetings.first(self._context.name))]

    def leave(self) -> list[Effect]:
        """Return a goodbye to every live peer."""
        return [Send(peer, self._message(Phase.BYE)) for peer in self.members.live()]

    def timer(self, name: str) -> list[Effect]:
        """Handle a timer: PROBE, SYNC, or SUSPECT and a peer's name."""
        if name == PROBE:
            return self._probe()
        if name == SYNC:
            return [SetTimer(SYNC, self._timing.sync_interval_s), *self._compare()]
        peer = name.removeprefix(SUSPECT)
        if peer in self.members:
            self.members.bury(peer)
            self._tell(peer)
        return []

    def _probe(self) -> list[Effect]:
        self._period += 1
        interval = self._timing.probe_interval_s * self.health.factor
        effects: list[Effect] = [SetTimer(PROBE, interval)]
        target = self._rota.next(self.members.live())
        if target and target not in self._probes:
            effects.append(self._ping(target))
        greeted = self.greetings.interval()
        if not greeted:
            target = self._absentees.next(self.members.absent())
            greeted = self.greetings.add([target] if target else [])
        return [*effects, *self.hellos(greeted)]

    def _compare(self) -> list[Effect]:
        live = self.members.live()
        return [self._ask_list(self._random("sync").choice(live))] if live else []

    def _random(self, purpose: str) -> random.Random:
        return self._context.random(self._period, purpose)

    # What was sent --------------------------------------------------------------------------------

    def sent(self, now: float, event: Delivered | Undelivered) -> list[Effect]:
        """Learn from how any send ended.

        An answer is a sign of life of the peer that gave it. If a helper was asked to ping another
        peer, only its "ok" is a sign of life of that peer.
        """
        peer, message = event.to, event.message
        phase, target = message.phase, message.facts.get(TARGET, "")
        self.health.sent(event)
        if isinstance(event, Delivered):
            self.own.told(peer, message)
            if event.note:
                self.own.missed(peer)
            relayed = self._relayed(now, target, peer) if phase == Phase.INDIRECT else []
            return [*self.heard(now, peer), *relayed, *self._errands.end(peer, message, "ok")]
        unhelped = self._unhelped(now, target, peer) if phase == Phase.INDIRECT else []
        if not event.sent:
            return [*unhelped, *self._errands.end(peer, message, "silent")]
        if event.code != "unreachable":
            answered = self._answered(now, peer, event)
            return [*answered, *unhelped, *self._errands.end(peer, message, "ok")]
        before = self.members[peer]
        self.members.failed(peer, now, event.reason)
        errands = self._errands.end(peer, message, "silent")
        warned = become(before, self.members[peer])
        return [*errands, *unhelped, *warned, *self._ask_others(now, peer, event.reason)]

    def _speaks(self, now: float, peer: str) -> bool:
        """Tell whether a member that cannot be reached spoke lately: it lives, nobody need ask."""
        held = self.members[peer]
        return bool(held.unreached) and now - held.spoke_at <= self.around_s

    def _answered(self, now: float, peer: str, event: Undelivered) -> list[Effect]:
        """Learn from an answer of a peer that did not take the message."""
        if event.code == "refused":
            self.members.refused(peer, now, event.reason)
            return self._cleared(peer)
        if event.code == "busy":
            self.members.busy(peer, event.reason)
            return self._cleared(peer)
        return self.heard(now, peer)

    def heard(self, now: float, peer: str, round_number: int | None = None) -> list[Effect]:
        """Note a sign of life of a peer."""
        before = self.members[peer].state
        self.members.heard(peer, now, round_number)
        after = self.members[peer].state
        if after == before == "alive":
            self._probes.pop(peer, None)
            return []
        if after == "left":  # it answered what was sent before
            return self._cleared(peer)
        if before != "unknown" or peer not in self.members.listed:  # each node greets its list
            self._tell(peer)
        back: list[Effect] = self._cleared(peer)
        if before in {"dead", "left"}:
            if lists.asks(len(self.members.live()), self._random(f"back {peer}")):
                back.append(self._ask_list(peer))
        elif before == "unknown" and peer not in self.members.listed and round_number is not None:
            back.append(self._ping(peer))  # a newcomer: see whether it is where it says
        return back

    def _cleared(self, peer: str) -> list[Effect]:
        self._probes.pop(peer, None)
        return [CancelTimer(SUSPECT + peer)]

    def _ask_others(self, now: float, peer: str, reason: str) -> list[Effect]:
        """Ask helpers to ping a peer that did not answer; if there are none, suspect it at once.

        Ask once an interval for each peer. A peer that speaks and cannot be reached would otherwise
        cost an errand for every message that is sent to it.
        """
        if self.members[peer].state != "alive" or peer in self._probes or self._speaks(now, peer):
            return []
        others = [name for name in self.members.live() if name != peer]
        generator = self._random(f"indirect {peer}")
        helpers = generator.sample(others, min(HELPERS, len(others)))
        if not helpers:
            suspected = self._suspect(now, peer, reason)
            self.health.worse()
            return suspected
        if self._asked.get(peer) == self._period:
            return []
        self._asked[peer] = self._period
        self._probes[peer] = Probe(set(helpers), reason)
        limit = self._timeout() * INDIRECT_LIMIT
        message = self._message(Phase.INDIRECT, {TARGET: peer})
        return [Send(name, message, limit) for name in sorted(helpers)]

    def _relayed(self, now: float, target: str, helper: str) -> list[Effect]:
        """Note that a helper reached a target that this node could not reach: the target lives."""
        if self._probes.pop(target, None) is None or target not in self.members:
            return []
        self.health.worse()
        before, text = self.members[target], f"{target} answers {helper}, but not this node"
        self.members.relayed(target, now, text)
        if before.state == "suspect":
            self._tell(target)
        told = [] if before.unreached else [Record("peer.unreachable", text)]
        return [*self._cleared(target), *told]

    def _unhelped(self, now: float, target: str, helper: str) -> list[Effect]:
        probe = self._probes.get(target)
        if probe is None:
            return []
        probe.helpers.discard(helper)
        if probe.helpers:
            return []
        del self._probes[target]
        return self._suspect(now, target, probe.reason)

    def _suspect(self, now: float, peer: str, reason: str) -> list[Effect]:
        if self._speaks(now, peer):
            return []
        self.members.suspect(peer, reason)
        self._tell(peer)
        return [SetTimer(SUSPECT + peer, self._suspicion_s())]

    def _suspicion_s(self) -> float:
        return self._timing.suspicion_s(len(self.members) + 1) * self.health.patience

    def _timeout(self) -> float:
        return self._timing.probe_timeout_s * self.health.factor

    # What came ------------------------------------------------------------------------------------

    def received(self, now: float, message: Message, token: int) -> list[Effect] | None:
        """Handle a message of PHASES that passed the gate.

        Return effects; None if the kernel is to answer "ok", as for every phase but "indirect".
        """
        sender, phase = message.sender, message.phase
        if phase == Phase.BYE:
            self.members.left(sender, now)
            self._tell(sender)
            return None
        if phase == Phase.INDIRECT:
            return self._run_errand(message.facts.get(TARGET, ""), token)
        return None

    def lists(self, message: Message) -> list[Effect]:
        """Return the entries of this node's list that a "members" message asks for.

        Digests are answered once an interval, and only once all members were greeted: to a node
        that comes back to a large mesh, all others send digests, and its list is still short.
        """
        if message.phase != Phase.MEMBERS or lists.ANSWER not in message.facts:
            return []
        by_digests = lists.DIGESTS in message.facts
        if by_digests and (self.greetings or self._compared == self._period):
            return []
        answer = lists.answer(self._list(), message.facts, self._period)
        if answer is None:
            return []
        self._compared = self._period if by_digests else self._compared
        said = self._message(Phase.MEMBERS, answer[0])
        return [Send(message.sender, replace(said, members=tuple(answer[1])))]

    def _run_errand(self, target: str, token: int) -> list[Effect]:
        if target == self._context.name:
            return [Answer(token, "ok")]
        if target not in self.members or self.members[target].state in GONE:
            return [Answer(token, "silent", f"{target[:64]!r} is not known here")]
        if self._errands.full:
            return [Answer(token, "busy", "this node runs too many errands already")]
        if not self._errands.begin(target, token):
            return []
        message = self._message(Phase.PING, {lists.ANSWER: ""})
        return [Send(target, message, self._timing.probe_timeout_s)]

    # News -----------------------------------------------------------------------------------------

    def learn(self, now: float, news: Iterable[Update], sender: str = "") -> list[Effect]:
        """Apply news from a peer; sender: "" for the host."""
        effects: list[Effect] = []
        for update in news:
            if update.name == self._context.name and update.proof and not sender:
                self.own.renew(update.proof)
                self._gossip.add(self.own.news)
            effects += self._contradict(update) if update.name == self._context.name else ()
            if update.name != self._context.name:
                effects += self._learn(now, update, sender)
        return effects

    def meet(self, news: Iterable[Update]) -> list[Effect]:
        """Add members that were not known before, from their own news."""
        members = self.members
        return [
            Introduce(update.name, members[update.name].address)
            for update in news
            if members.meet(update) and members.place(update, update.name)
        ]

    def _learn(self, now: float, news: Update, sender: str) -> list[Effect]:
        members, effects = self.members, list[Effect]()
        new = members.meet(news)
        if news.name not in members:
            return []
        if members.place(news, sender):
            effects.append(Introduce(news.name, members[news.name].address))
        lately_s = 2 * self._timing.probe_interval_s
        what = members.weigh(news, now, lately_s, self._speaks(now, news.name))
        if new or what == "ask":
            return [*effects, *self.hellos(self.greetings.add([news.name]))]
        if what:
            self._tell(news.name)
        if what == "suspect":
            timer = SetTimer(SUSPECT + news.name, self._suspicion_s())
            return [*effects, timer, self._ping(news.name)]
        if what in {"alive", "dead", "revoked"}:
            effects += self._cleared(news.name)
        return effects

    def _contradict(self, news: Update) -> list[Effect]:
        """Contradict doubts about this node; take over its incarnation from an earlier life."""
        if news.state == "revoked":
            return [Record("identity.revoked", "the mesh revoked this node's key", "error")]
        if self.own.contradicts(news):
            if news.state == "suspect":
                self.health.worse()
            self._gossip.add(self.own.news)
        return []

    def _tell(self, peer: str) -> None:
        update = self.members[peer].update()
        if update is not None:
            self._gossip.add(update)

    # Messages -------------------------------------------------------------------------------------

    def _ping(self, peer: str) -> Send:
        own = (self.own.news,) if self.own.unknown_to(peer) else ()
        message = replace(self._message(Phase.PING), members=(*own, *self._gossip.take(peer)))
        return Send(peer, message, self._timeout())

    def hellos(self, peers: Iterable[str]) -> list[Effect]:
        """Return a hello to each of the peers."""
        own, limit = self.own.news, self._timeout()
        plain = replace(self._message(Phase.HELLO), members=(own,))
        return [
            Send(peer, replace(plain, members=(own, *about)) if about else plain, limit)
            for peer in peers
            for about in [self._gossip.about(peer)]
        ]

    def _ask_list(self, peer: str) -> Send:
        message = self._message(Phase.MEMBERS, lists.question(self._list()))
        return Send(peer, replace(message, members=(self.own.news,)))

    def _list(self) -> list[Update]:
        known = (member.update() for member in self.members.view())
        return [self.own.news, *(update for update in known if update is not None)]

    def _message(self, phase: str, facts: dict[str, str] | None = None) -> Message:
        message = self._say(phase)
        return message if facts is None else replace(message, facts=facts)
