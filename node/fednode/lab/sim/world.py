"""A mesh in virtual time: kernels, learners and disks in one process, on a network that can fail.

The world performs effects as the daemon does: in order, messages through the codec, and a Send that
follows an Adopt only once the snapshot is durable. But time is a number, chance is one seed, and
nothing waits. So a run of hours takes moments and repeats itself exactly.

Set `memorable` to False for long runs: the world then keeps meters, warnings and errors, but no
messages, snapshots and other records. `watch` is called with every snapshot.

The caller sets the faults: `crash`, `wipe` and `start` a node, `cut` and `mend` a link, the other
methods of `network`, a disk that is `full` or slow, a wrong clock, and a `liar` that changes what
its node sends and answers. Checkers (lab/simulate/checkers.py) inspect every step.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fednode.core import events as ev
from fednode.core.kernel import Kernel
from fednode.core.types import MEASURE, Account, Dtype, Job, MemberUpdate, Message, Snapshot
from fednode.core.view import Life
from fednode.errors import FednodeError, FrameError
from fednode.lab.sim.host import Build, Host, InFlight, travelled
from fednode.lab.sim.network import Network
from fednode.lab.sim.setup import Setup
from fednode.learn.learner import Learner, released
from fednode.transports.framing import Traffic
from fednode.wire import codec
from fednode.wire.codec import Broadcasts

# A run that takes more events than this never ends.
EVENTS_MAX: Final = 5_000_000
TIMEOUT_S: Final = 0.5
"""The sender of a message without a time limit of its own gives up after this time."""


class Checker:
    """Inspects every step of every node, and raises Violation (lab/simulate/checkers.py)."""

    def started(self, world: World, name: str) -> None:
        """Inspect a node that was just switched on, before its first step."""

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Inspect a step's event and its effects, before any effect is performed."""


class World:
    """All hosts, the network between them, and the one clock; see the file's header.

    seed: for delays and losses. delay_s, loss: of the network.
    """

    def __init__(
        self,
        seed: int = 0,
        delay_s: tuple[float, float] = (0.001, 0.05),
        loss: float = 0.0,
        memorable: bool = True,
    ) -> None:
        self.now = 0.0
        self.hosts: dict[str, Host] = {}
        self.network = Network(random.Random(seed), delay_s, loss)
        self.checkers: list[Checker] = []
        self.messages: list[Message] = []
        self.traffic: dict[str, Traffic] = {}  # of all nodes, by phase
        self.memorable = memorable
        self.events, self.events_max = 0, EVENTS_MAX
        self.errors: list[str] = []
        self.watch: Callable[[str, Snapshot], None] = lambda name, snapshot: None
        self._broadcasts = Broadcasts()
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._tokens = itertools.count(1)

    # The caller's interface -----------------------------------------------------------------------

    def add(
        self,
        name: str,
        build: Build,
        learner: Learner,
        dtype: Dtype = "float32",
        tune_s: float = 0.2,
    ) -> None:
        """Add a machine, switched off."""
        self.hosts[name] = Host(build=build, learner=learner, dtype=dtype, tune_s=tune_s)

    def populate(self, plan: Setup, learners: Mapping[str, Learner], tune_s: float = 0.2) -> None:
        self.place(plan, learners, tune_s)
        self.start(*sorted(learners))

    def place(self, plan: Setup, learners: Mapping[str, Learner], tune_s: float = 0.2) -> None:
        for name in sorted(learners):
            peers, learner = tuple(sorted(set(learners) - {name})), learners[name]
            dtype: Dtype = getattr(plan.config, "wire_dtype", "float32")
            self.add(name, plan.build(name, peers, learner), learner, dtype, tune_s)

    def start(self, *names: str) -> None:
        """Switch nodes on; each resumes from what its disk holds."""
        for name in names:
            host = self.hosts[name]
            host.boot += 1
            host.timers, host.answers, host.addresses = {}, {}, {}
            host.waiting, host.events = None, deque()
            host.kernel = host.build(host.durable, host.account)
            for checker in self.checkers:
                checker.started(self, name)
            self._step(name, ev.Started())

    def crash(self, name: str) -> None:
        """Switch a node off at once; only its durable state survives."""
        self.hosts[name].kernel = None
        self.hosts[name].boot += 1  # a commit in progress is lost

    def command(self, name: str, command: ev.Command) -> None:
        self._step(name, ev.Commanded(command))

    def cut(self, node: str, other: str) -> None:
        self.network.cut(node, other)
        self.network.cut(other, node)

    def mend(self, node: str, other: str) -> None:
        self.network.mend(node, other)
        self.network.mend(other, node)

    def at(self, delay_s: float, act: Callable[..., None], *given: Any) -> None:
        """Call a function after a delay in virtual time."""
        self.events += 1
        heapq.heappush(self._heap, (self.now + delay_s, self.events, act, given))

    def kernel(self, name: str) -> Kernel:
        """Return the kernel of a node; raise RuntimeError if the node is off."""
        kernel = self.hosts[name].kernel
        if kernel is None:
            raise RuntimeError(f"{name} is off")
        return kernel

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Let virtual time pass until a condition holds; tell whether it held within limit_s."""
        end = self.now + limit_s
        while not until():
            if not self._heap or self._heap[0][0] > end:
                self.now = end
                return False
            self.now, _, act, given = heapq.heappop(self._heap)
            act(*given)
            if self.events > self.events_max:
                raise RuntimeError(f"more than {self.events_max:,} events")
        return True

    def finished(self) -> bool:
        on = [host.kernel for host in self.hosts.values() if host.kernel is not None]
        return all(kernel.life is Life.FINISHED for kernel in on)

    # Events and effects ---------------------------------------------------------------------------

    def _post(self, name: str, boot: int, delay: float, event: ev.Event) -> None:
        """Give a node an event later, unless it crashes before."""
        self.at(delay, self._give, name, boot, event)

    def _give(self, name: str, boot: int, event: ev.Event) -> None:
        if self.hosts[name].boot == boot:
            self._step(name, event)

    def _step(self, name: str, event: ev.Event) -> None:
        host = self.hosts[name]
        if host.kernel is None:
            return
        if host.waiting is not None:
            host.events.append(event)
            return
        self._go_on(name, host, self._think(name, host.kernel, event))

    def _think(self, name: str, kernel: Kernel, event: ev.Event) -> deque[ev.Effect]:
        effects = kernel.step(self.now + self.hosts[name].clock_s, event)
        for checker in self.checkers:
            checker.stepped(self, name, event, effects)
        return deque(effects)

    def _go_on(self, name: str, host: Host, effects: deque[ev.Effect]) -> None:
        """Perform effects in order, wait for a slow commit, then handle the events that waited."""
        while True:
            while effects:
                effect = effects.popleft()
                if isinstance(effect, ev.Adopt) and host.disk_s > 0:
                    host.waiting = effects
                    self._commit_later(name, host, effect)
                    return
                self._perform(name, host, effect)
            if not host.events or host.kernel is None:
                return
            effects = self._think(name, host.kernel, host.events.popleft())

    def _commit_later(self, name: str, host: Host, adopt: ev.Adopt) -> None:
        boot = host.boot

        def commit() -> None:
            if host.boot == boot and host.waiting is not None:
                effects, host.waiting = host.waiting, None
                self._adopt(name, host, adopt)
                self._go_on(name, host, effects)

        self.at(host.disk_s, commit)

    def _perform(self, name: str, host: Host, effect: ev.Effect) -> None:
        match effect:
            case ev.Send(to=peer, message=message, limit_s=limit):
                self._send(name, host.boot, peer, message, limit or TIMEOUT_S)
            case ev.Introduce(peer=peer, address=address):
                host.addresses[peer] = address
            case ev.Answer(token=token, code=code, detail=detail, later=later):
                self._reply(host.answers.pop(token), code, detail, later)
            case ev.Spend(releases=releases, undecided=undecided):
                host.account = Account(host.account.releases + releases, undecided)
            case ev.SetTimer(name=timer, delay_s=delay):
                self._set_timer(name, host, timer, delay)
            case ev.CancelTimer(name=timer):
                host.timers.pop(timer, None)
            case ev.Tune(job=job):
                self._tune(name, host, job)
            case ev.Adopt():
                self._adopt(name, host, effect)
            case ev.Record():
                if self.memorable or effect.level in {"warning", "error"}:
                    host.records.append(effect)
                if effect.level == "error":
                    self.errors.append(f"{name}: {effect.text}")

    def _set_timer(self, name: str, host: Host, timer: str, delay: float) -> None:
        number = self.events + 1  # of the event that `at` adds
        host.timers[timer] = number
        self.at(delay, self._fire, name, host, host.boot, timer, number)

    def _fire(self, name: str, host: Host, boot: int, timer: str, number: int) -> None:
        if host.boot == boot and host.timers.get(timer) == number:
            del host.timers[timer]
            self._step(name, ev.TimerFired(timer))

    def _tune(self, name: str, host: Host, job: Job) -> None:
        try:
            report = released(host.learner, host.release, job, lambda: False, lambda _: None)
            if job.stage != MEASURE:
                host.account = replace(host.account, releases=host.account.releases + 1)
        except FednodeError as fault:
            self._post(name, host.boot, host.tune_s, ev.TuneFailed(job, str(fault)))
        else:
            self._post(name, host.boot, host.tune_s, ev.Tuned(job, report))

    def _adopt(self, name: str, host: Host, adopt: ev.Adopt) -> None:
        if host.full:
            self._post(name, host.boot, 0.0, ev.AdoptFailed(adopt, "no space left"))
            return
        snapshot = adopt.snapshot
        host.durable = snapshot
        if self.memorable:
            host.history.append(snapshot)
        self.watch(name, snapshot)
        self._post(name, host.boot, 0.0, ev.Adopted(snapshot))

    # The network ----------------------------------------------------------------------------------

    def _send(self, sender: str, boot: int, to: str, message: Message, limit_s: float) -> None:
        address = self.hosts[sender].addresses.get(to, to)
        if address != to:  # nobody is found at another address than its name
            reason = f"nobody answers at {address}"
            self._post(sender, boot, 0.0, ev.Undelivered(to, message, "unreachable", reason))
            return
        liar = self.hosts[sender].liar
        told = False  # a hostile node learns the end of one exchange only
        for target, said in [(to, message)] if liar is None else liar.say(to, message):
            exchange = InFlight(sender, boot, to, message, done=told)
            told = True
            self._fail(exchange, limit_s)
            try:
                decoded = self._through_codec(sender, said)
            except FednodeError:  # a hostile message that cannot be encoded
                continue
            for delay in self.network.arrivals(sender, target):
                self._carry(delay, sender, target, self._arrive, exchange, target, decoded)
        if not told:  # withheld: the hostile node's own kernel takes it for delivered
            self._post(sender, boot, 0.0, ev.Delivered(to, message))

    def _carry(
        self, delay: float, sender: str, to: str, act: Callable[..., None], *given: Any
    ) -> None:
        """Perform an arrival later, if its link is whole then; a clogged link holds it back."""
        self.at(delay, self._pass, sender, to, act, given)

    def _pass(self, sender: str, to: str, act: Callable[..., None], given: tuple[Any, ...]) -> None:
        if self.network.passes(sender, to) and not self.network.hold(sender, to, act, *given):
            act(*given)

    def _arrive(self, exchange: InFlight, to: str, message: Message) -> None:
        host = self.hosts.get(to)
        if host is None or host.kernel is None:
            return
        if message.sender != exchange.sender:  # the sender's key belongs to another name
            self._reply(replace(exchange, to=to), "refused", "this key is another's")
            return
        token = next(self._tokens)
        host.answers[token] = exchange
        if message.members:
            message = replace(message, members=self._believed(message))
        self._step(to, ev.Received(message, token))

    def _believed(self, message: Message) -> tuple[MemberUpdate, ...]:
        """Return the news of hosts in a message; a member's address counts only from itself."""
        return tuple(
            update
            if update.name == message.sender or not update.address
            else replace(update, address="")
            for update in message.members
            if update.name in self.hosts
        )

    def _through_codec(self, sender: str, message: Message) -> Message:
        """Encode, decode and meter a message; a message to several peers is encoded once."""
        outgoing = self._broadcasts.outgoing(message, self.hosts[sender].dtype)
        decoded = outgoing.decoded
        if self.memorable:
            self.messages.append(message)
        traffic = self.traffic.setdefault(message.phase, Traffic())
        traffic.count(outgoing.payload, len(outgoing.frame))
        return decoded

    def _reply(self, exchange: InFlight, code: ev.AckCode, detail: str, later: int = 0) -> None:
        to, message, liar = exchange.to, exchange.message, self.hosts[exchange.to].liar
        event: ev.Delivered | ev.Undelivered
        try:
            if liar is None:
                ack = travelled(code, detail, later)
            else:
                said = liar.answer(exchange.sender, message, code, detail)
                ack = codec.decode_ack(codec.write_ack(*said, liar.later(later)))
            event = ev.acknowledged(to, message, *ack)
        except FrameError as fault:
            event = ev.Undelivered(to, message, "unreachable", str(fault))
        for delay in self.network.arrivals(exchange.to, exchange.sender):
            self._carry(delay, exchange.to, exchange.sender, self._end, exchange, event)

    def _fail(self, exchange: InFlight, limit_s: float) -> None:
        """End an exchange as undelivered after its limit, unless it has ended before."""
        to = exchange.to
        event = ev.Undelivered(to, exchange.message, "unreachable", f"{to} does not answer")
        self.at(limit_s, self._end, exchange, event)

    def _end(self, exchange: InFlight, event: ev.Delivered | ev.Undelivered) -> None:
        if not exchange.done and self.hosts[exchange.sender].boot == exchange.boot:
            exchange.done = True
            self._step(exchange.sender, event)
