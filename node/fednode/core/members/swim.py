"""SWIM: who is in the mesh and who answers, at a constant load for each node (Das et al., 2002).

Each probe_interval_s the node pings one live member, in shuffled round-robin. If the member does
not answer within probe_timeout_s, `indirect` others are asked to ping it. If none of them gets
through, the member is suspect. It is dead if it does not contradict in time. A member that hears
that it is suspect contradicts with a higher incarnation. A member that speaks and that this node
cannot reach is no suspect: the node warns, and tells that member in its answers. News travels on
these messages. Each interval one absent member is greeted: so the parts of a cut mesh meet. At its
start a node greets all members.

Now and then, and when a member is back, two nodes compare their lists by a digest. If it differs,
each sends the other its whole list.

A node of an overloaded machine, or behind a bad link, gets answers too late, and would take live
members for dead. It notices: its pings fail, and the members that it asks for help do not answer
either; or others get through to a member that it cannot reach; or others suspect it. Then it probes
less often and waits longer (Lifeguard's local health, Dadgar et al. 2018).
"""

from __future__ import annotations

import hashlib
import math
import random
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal

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
from fednode.core.members.reachability import become
from fednode.core.members.table import ABSENT, GONE, INCARNATION_MAX, LIVE, SHUT, Members
from fednode.core.policy import NodeContext
from fednode.core.settings import Timing
from fednode.core.types import MemberUpdate, Message, Phase

PROBE: Final = "kernel.probe"
SYNC: Final = "kernel.sync"
SUSPECT: Final = "kernel.suspect."
TARGET: Final = "target"  # fact of an "indirect" message: the member to ping
ERRAND: Final = "errand"
"""Fact of a "ping" that a node sends because another node does not reach the receiver."""
DIGEST: Final = "digest"  # fact of a "members" message: the digest of the sender's list
ANSWER: Final = "answer"
"""Fact of a "members" message that answers a digest with a list, and asks for a list in return."""
HELPERS: Final = 3
"""Number of members that are asked to ping a member that does not answer, as in SWIM's paper."""
INDIRECT_LIMIT: Final = 2.5  # time limit of an indirect ping, in units of probe_timeout_s
ERRANDS_MAX: Final = 64
CALLER_ERRANDS_MAX: Final = 16
"""Pings for one member under way at a time, so that one member cannot take all ERRANDS_MAX."""
GREETED_MAX: Final = 64
"""Members that a node greets in one interval; the others wait for the next one."""
SLOWNESS_MAX: Final = 8
NEWS_MAX: Final = 12  # items of news on one message, besides the item about its receiver
RETRANSMIT_MULT: Final = 3  # an item of news is told RETRANSMIT_MULT * log2(nodes + 1) times
DOUBTED: Final = frozenset({"suspect", "dead", "left"})


@dataclass(slots=True)
class Probe:
    """A ping that failed. helpers: members that may still get through."""

    helpers: set[str]
    reason: str


class RoundRobin:
    """Names, each in its turn, in an order that is drawn for each turn."""

    def __init__(self, draw: Callable[[], random.Random]) -> None:
        self._draw = draw
        self._left: list[str] = []  # the next one last

    def next(self, names: Sequence[str]) -> str:
        """Return the name whose turn it is; "" if there is none. names: all that have turns now."""
        while self._left:
            name = self._left.pop()
            if name in names:
                return name
        self._left = list(names)
        self._draw().shuffle(self._left)
        self._left.reverse()
        return self._left.pop() if self._left else ""


class Gossip:
    """News that a node passes on: each item a few times, the least told items first."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._items: dict[str, tuple[int, MemberUpdate]] = {}
        self._turn = 0

    def add(self, news: MemberUpdate) -> None:
        """Tell an item from now on, in place of an older one about the same member."""
        self._items[news.name] = (0, news)

    def about(self, peer: str) -> list[MemberUpdate]:
        """Return what is held of a member, if there is anything to tell.

        A member that refuses this node, or that this node refuses, takes no news but revoked keys.
        """
        held = self._members[peer]
        if held.state == "refused":
            return self._revoked()
        news = held.update()
        return [] if news is None else [news]

    def _revoked(self) -> list[MemberUpdate]:
        """Return revocations, at most NEWS_MAX; the next ones in the next call."""
        revoked = (one for one in self._members.view() if one.state == "revoked")
        news = [update for one in revoked if (update := one.update())]
        if len(news) <= NEWS_MAX:
            return news
        self._turn += 1
        at = self._turn * NEWS_MAX % len(news)
        return (news[at:] + news[:at])[:NEWS_MAX]

    def take(self, to: str) -> tuple[MemberUpdate, ...]:
        """Return the news for a peer: what is held of that peer, then the least told items."""
        most = math.ceil(RETRANSMIT_MULT * math.log2(len(self._members) + 2))
        order = sorted(self._items, key=lambda name: (self._items[name][0], name))
        news = self.about(to)
        for name in [name for name in order if name != to][:NEWS_MAX]:
            times, update = self._items[name]
            news.append(update)
            self._items[name] = (times + 1, update)
            if times + 1 >= most:
                del self._items[name]
        return tuple(news)


def digest_of(listed: Iterable[MemberUpdate]) -> str:
    """Return the digest of what nodes agree on after each told the other its list.

    That is which members answer, with the newest incarnation, and which are revoked. It leaves out
    the members that are dead or unknown, whether a member is only suspected, and which of its keys
    were revoked: the first revocation that a node learns is the one that it keeps. Two nodes still
    differ on a member that only one of them reaches.
    """
    lines = [
        f"{one.name}\0revoked"
        if one.state == "revoked"
        else f"{one.name}\0{one.id}\0{one.incarnation}"
        for one in listed
        if one.state in {*LIVE, "revoked"}
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


class Swim:
    """Membership of one node; see the file's header.

    slowness: the multiplier of this node's probe interval and probe timeout, from 1 (well) to
    SLOWNESS_MAX. The kernel takes changes of state from `members.changes`.
    """

    def __init__(self, context: NodeContext, timing: Timing, say: Callable[[str], Message]) -> None:
        """Begin. say: returns a message of a phase, with the node's round and its contents."""
        self.members = Members(context.peers)
        self._context = context
        self._say = say
        self._timing = timing
        self.slowness = 1
        self._incarnation, self._proof = 0, context.proof
        self._period = 0
        self._targets = RoundRobin(lambda: self._random("probe"))
        self._absentees = RoundRobin(lambda: self._random("greet"))
        self._waiting: dict[str, None] = {}  # members to greet in the next interval
        self._room = GREETED_MAX
        self._compared = -1  # the interval in which this node last sent its list
        self._probes: dict[str, Probe] = {}
        self._asked: dict[str, int] = {}  # by peer: the interval when helpers were last asked
        self._errands: dict[str, dict[int, str]] = {}  # by target: tokens and names of callers
        self._gossip = Gossip(self.members)

    @property
    def around_s(self) -> float:
        """Return the time in which every live member speaks to this node at least once."""
        count = len(self.members) + 1
        return self._timing.suspicion_s(count) + 2 * count * self._timing.probe_interval_s

    # The clockwork --------------------------------------------------------------------------------

    def start(self) -> list[Effect]:
        clocks: list[Effect] = [
            SetTimer(PROBE, self._timing.probe_interval_s),
            SetTimer(SYNC, self._timing.sync_interval_s),
        ]
        names = sorted(self.members.remaining())
        behind = bisect(names, self._context.name)  # so that not all nodes greet the same members
        return [*clocks, *self.greet([*names[behind:], *names[:behind]])]

    def leave(self) -> list[Effect]:
        return [Send(peer, self._message(Phase.BYE)) for peer in self.members.live()]

    def timer(self, name: str) -> list[Effect]:
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
        effects: list[Effect] = [SetTimer(PROBE, self._timing.probe_interval_s * self.slowness)]
        target = self._targets.next(self.members.live())
        if target and target not in self._probes:
            effects.append(self._ping(target))
        silent = [name for name in self._waiting if self.members[name].state in ABSENT]
        self._waiting, self._room = {}, GREETED_MAX
        if not silent and (absentee := self._absentees.next(self.members.absent())):
            silent = [absentee]
        return [*effects, *self.greet(silent)]

    def greet(self, names: Iterable[str]) -> list[Effect]:
        """Greet members, at most GREETED_MAX in an interval; the others wait for the next one."""
        self._waiting |= dict.fromkeys(names)
        greeted = list(islice(self._waiting, self._room))
        self._room -= len(greeted)
        for name in greeted:
            del self._waiting[name]
        return self.hellos(sorted(greeted))

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
        target = message.facts.get(TARGET, "")  # "" unless it was an indirect ping
        left = isinstance(event, Delivered) or event.sent
        answered = left and (isinstance(event, Delivered) or event.code != "unreachable")
        if answered and message.phase == Phase.PING:
            self.slowness = max(1, self.slowness - 1)
        elif left and not answered and message.phase == Phase.INDIRECT:
            self._slow_down()
        errands = self._end_errand(peer, message, "ok" if answered else "silent")
        if isinstance(event, Delivered):
            back = [*self.heard(now, peer), *self._relayed(now, target, peer), *errands]
            if event.note and message.phase != Phase.HELLO and self.members[peer].live:
                back += self.greet([peer])  # it may know an old address of this node
            return back
        unhelped = self._unhelped(now, target, peer)
        if answered:
            return [*self._answered(now, peer, event), *unhelped, *errands]
        if not left:
            return [*unhelped, *errands]
        before = self.members[peer]
        self.members.failed(peer, now, event.reason)
        warned = become(before, self.members[peer])
        return [*errands, *unhelped, *warned, *self._ask_others(now, peer, event.reason)]

    def _slow_down(self) -> None:
        self.slowness = min(SLOWNESS_MAX, self.slowness + 1)

    def _speaks(self, now: float, peer: str) -> bool:
        """Tell whether a member that cannot be reached spoke lately: it lives, nobody need ask."""
        held = self.members[peer]
        return bool(held.unreached) and now - held.spoke_at <= self.around_s

    def _answered(self, now: float, peer: str, event: Undelivered) -> list[Effect]:
        if event.code == "refused":
            self.members.refused(peer, now, event.reason)
        elif event.code == "busy":
            self.members.busy(peer, event.reason)
        else:
            return self.heard(now, peer)
        return self._cleared(peer)

    def heard(self, now: float, peer: str, round_number: int | None = None) -> list[Effect]:
        before = self.members[peer].state
        self.members.heard(peer, now, round_number)
        after = self.members[peer].state
        if after == before == "alive":
            self._probes.pop(peer, None)
            return []
        if after != "alive":  # it answered what was sent before it left, or is shut out
            return self._cleared(peer)
        if before != "unknown" or peer not in self.members.listed:  # each node greets its list
            self._tell(peer)
        back: list[Effect] = self._cleared(peer)
        unproved = bool(self._proof and not self.members[peer].proof)  # an answer carries no news
        if before in {"dead", "left"} or (unproved and round_number is None):
            back.append(self._ask_list(peer))  # both may have missed news
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
            self._slow_down()
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
        self._slow_down()
        before, text = self.members[target], f"{target} answers {helper}, but not this node"
        self.members.relayed(target, now, text)
        if before.state == "suspect":
            self._tell(target)
        record = [] if before.unreached else [Record("peer.unreachable", text)]
        return [*self._cleared(target), *record]

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
        patience = 1 + (self.slowness - 1) / (SLOWNESS_MAX - 1)
        return self._timing.suspicion_s(len(self.members) + 1) * patience

    def _timeout(self) -> float:
        return self._timing.probe_timeout_s * self.slowness

    # What came ------------------------------------------------------------------------------------

    def received(self, now: float, message: Message, token: int) -> list[Effect]:
        """Handle a message of the kernel, which answers all but "indirect" itself."""
        if message.phase == Phase.INDIRECT:
            return self._run_errand(message.sender, message.facts.get(TARGET, ""), token)
        if message.phase == Phase.BYE:
            self.members.note_goodbye(message.sender, now)
            self._tell(message.sender)
        return self._lists(message) if message.phase == Phase.MEMBERS else []

    def _lists(self, message: Message) -> list[Effect]:
        """Return this node's list, if a message names the digest of another list.

        The list is sent once an interval, and only once all members were greeted: to a node that
        comes back to a large mesh, all others send digests, and its list is still short.
        """
        theirs = message.facts.get(DIGEST, "")
        if not theirs or self._waiting or self._compared == self._period:
            return []
        listed = self._list()
        own = digest_of(listed)
        if theirs == own:
            return []
        self._compared = self._period
        facts = {} if ANSWER in message.facts else {DIGEST: own, ANSWER: "yes"}
        answer = replace(self._message(Phase.MEMBERS, facts), members=tuple(listed))
        return [Send(message.sender, answer)]

    def _run_errand(self, caller: str, target: str, token: int) -> list[Effect]:
        if target == self._context.name:
            return [Answer(token, "ok")]
        if target not in self.members or self.members[target].state in GONE | SHUT:
            return [Answer(token, "silent", f"{target[:64]!r} is not known here")]
        callers = [name for waiting in self._errands.values() for name in waiting.values()]
        if len(callers) >= ERRANDS_MAX or callers.count(caller) >= CALLER_ERRANDS_MAX:
            return [Answer(token, "busy", "this node runs too many errands already")]
        waiting = self._errands.setdefault(target, {})
        waiting[token] = caller
        if len(waiting) > 1:
            return []
        message = self._message(Phase.PING, {ERRAND: "yes"})
        return [Send(target, message, self._timing.probe_timeout_s)]

    def _end_errand(
        self, peer: str, message: Message, code: Literal["ok", "silent"]
    ) -> list[Effect]:
        """Answer those who wait, if the message to a peer was the ping of an errand."""
        if ERRAND not in message.facts:
            return []
        detail = "" if code == "ok" else f"{peer} does not answer"
        return [Answer(token, code, detail) for token in self._errands.pop(peer, {})]

    # News -----------------------------------------------------------------------------------------

    @property
    def news(self) -> MemberUpdate:
        """The news of this node itself, which others pass on."""
        own = self._context
        return MemberUpdate(own.name, "alive", self._incarnation, own.address, own.id, self._proof)

    def learn(self, now: float, news: Iterable[MemberUpdate], sender: str = "") -> list[Effect]:
        """Apply news from a peer; sender: "" for the host."""
        effects: list[Effect] = []
        for update in news:
            if update.name != self._context.name:
                effects += self._learn(now, update, sender)
                continue
            if update.proof and not sender:  # a new certificate, which replaces the old one
                self._proof, self._incarnation = update.proof, self._incarnation + 1
                self._gossip.add(self.news)
            effects += self._contradict(update)
        return effects

    def meet(self, news: Iterable[MemberUpdate]) -> list[Effect]:
        members = self.members
        return [
            Introduce(update.name, members[update.name].address)
            for update in news
            if update.state == "alive"
            and members.meet(update)
            and members.place(update, update.name)
        ]

    def _learn(self, now: float, news: MemberUpdate, sender: str) -> list[Effect]:
        members, effects = self.members, list[Effect]()
        new = members.meet(news)
        if news.name not in members:
            return []
        if members.place(news, sender):
            effects.append(Introduce(news.name, members[news.name].address))
        before, lately_s = members[news.name].state, 2 * self._timing.probe_interval_s
        members.weigh(news, now, lately_s, self._speaks(now, news.name))
        held = members[news.name]
        returned = news.state == "alive" and news.incarnation == held.incarnation
        if held.state in ABSENT and (new or returned):
            return [*effects, *self.greet([news.name])]
        if held.state == before:
            return effects
        self._tell(news.name)
        if held.state == "suspect":
            timer = SetTimer(SUSPECT + news.name, self._suspicion_s())
            return [*effects, timer, self._ping(news.name)]
        return [*effects, *self._cleared(news.name)]

    def _contradict(self, news: MemberUpdate) -> list[Effect]:
        """Contradict doubts about this node; take over its incarnation from an earlier start."""
        if news.state == "revoked":
            return [Record("identity.revoked", "the mesh revoked this node's key", "error")]
        if news.incarnation > INCARNATION_MAX or news.incarnation < self._incarnation:
            return []
        self._incarnation = news.incarnation
        if news.state in DOUBTED:
            self._incarnation = min(self._incarnation + 1, INCARNATION_MAX)
            self._gossip.add(self.news)
            if news.state == "suspect":
                self._slow_down()
        return []

    def _tell(self, peer: str) -> None:
        update = self.members[peer].update()
        if update is not None:
            self._gossip.add(update)

    # Messages -------------------------------------------------------------------------------------

    def _ping(self, peer: str) -> Send:
        message = replace(self._message(Phase.PING), members=self._gossip.take(peer))
        return Send(peer, message, self._timeout())

    def hellos(self, peers: Iterable[str]) -> list[Effect]:
        own, limit = self.news, self._timeout()
        plain = replace(self._message(Phase.HELLO), members=(own,))
        return [
            Send(peer, replace(plain, members=(own, *about)) if about else plain, limit)
            for peer in peers
            for about in [self._gossip.about(peer)]
        ]

    def _ask_list(self, peer: str) -> Send:
        message = self._message(Phase.MEMBERS, {DIGEST: digest_of(self._list())})
        return Send(peer, replace(message, members=(self.news,)))

    def _list(self) -> list[MemberUpdate]:
        known = (member.update() for member in self.members.view())
        return [self.news, *(update for update in known if update is not None)]

    def _message(self, phase: str, facts: dict[str, str] | None = None) -> Message:
        message = self._say(phase)
        return message if facts is None else replace(message, facts=facts)
