"""A mesh in virtual time: kernels, learners and disks in one process, with a network that can fail.

The world performs effects as the daemon does (in order, a Send after an Adopt only once that is
durable, messages through the codec) but time is a number, chance is one seed, and nothing waits. So
a run of hours takes moments and repeats itself exactly.

Set `memorable` to False where runs are long: then messages and snapshots pass by and only meters
stay. `watch` sees every snapshot.

Faults are set by the caller: `crash`, `wipe` and `start` a node, `cut` and `mend` a link, what else
`network` can do, a disk that is `full` or slow, a clock that is off, and a `traitor`, which changes
what its node sends and answers. Checkers (node/sim/checkers.py) see every step.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from node.core.events import (
    AckCode,
    Adopt,
    Adopted,
    AdoptFailed,
    Answer,
    CancelTimer,
    Command,
    Commanded,
    Delivered,
    Effect,
    Event,
    Introduce,
    Received,
    Record,
    Send,
    SetTimer,
    Started,
    TimerFired,
    Tune,
    Tuned,
    TuneFailed,
    Undelivered,
    acknowledged,
)
from node.core.kernel import Kernel
from node.core.types import Job, Message, Snapshot
from node.errors import FednodeError, FrameError
from node.learn.learner import Learner
from node.sim.host import Build, Exchange, Host, Meter
from node.sim.network import Network
from node.sim.plan import Plan
from node.wire import codec
from node.wire.codec import Dtype

# No run of a mesh that fits into a test takes this many: one that does never ends.
EVENTS_MAX: Final = 5_000_000
TIMEOUT_S: Final = 0.5
"""After which the sender of a lost message gives up."""


class Checker(Protocol):
    """Watches every step of every node; raises Violation (node/sim/checkers.py)."""

    def started(self, world: World, name: str) -> None:
        """See a node switched on, before its first step."""
        ...

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """See what a step made of an event, before any effect is performed."""
        ...


class World:
    """All hosts, the links between them, and the one clock; see the file's header.

    seed: of delays and losses. delay_s, loss: of the network. checkers: see every step. admitted:
    tells whether news of a member passes, as leases decide for the daemon.
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
        self.admitted: Callable[[str], bool] = lambda name: name in self.hosts
        self.messages: list[Message] = []
        self.meters: dict[str, Meter] = {}
        self.memorable = memorable
        self.errors: list[str] = []
        self.watch: Callable[[str, Snapshot], None] = lambda name, snapshot: None
        self._frame: tuple[Message, Dtype, bytes, Message] | None = None
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._tokens = itertools.count(1)

    # What a caller does ---------------------------------------------------------------------------

    def add(
        self,
        name: str,
        build: Build,
        learner: Learner,
        dtype: Dtype = "float32",
        tune_s: float = 0.2,
    ) -> None:
        """Put a machine there, switched off."""
        self.hosts[name] = Host(build, learner, dtype, tune_s)

    def populate(self, plan: Plan, learners: Mapping[str, Learner], tune_s: float = 0.2) -> None:
        """Put a mesh there, a node for each learner, and switch it on."""
        self.place(plan, learners, tune_s)
        self.start(*sorted(learners))

    def place(self, plan: Plan, learners: Mapping[str, Learner], tune_s: float = 0.2) -> None:
        """Put a mesh there, a node for each learner, switched off."""
        dtype: Dtype = getattr(plan.config, "wire_dtype", "float32")
        for name in sorted(learners):
            peers = tuple(sorted(set(learners) - {name}))
            build = plan.build(name, peers, learners[name])
            self.add(name, build, learners[name], dtype, tune_s)

    def start(self, *names: str) -> None:
        """Switch nodes on, from what their disks hold."""
        for name in names:
            host = self.hosts[name]
            host.life += 1
            host.timers, host.answers, host.addresses = {}, {}, {}
            host.waiting, host.events = None, deque()
            host.kernel = host.build(host.durable)
            for checker in self.checkers:
                checker.started(self, name)
            self._step(name, Started())

    def crash(self, name: str) -> None:
        """Switch a node off at once; only what was durable stays."""
        self.hosts[name].kernel = None
        self.hosts[name].life += 1  # a commit under way never happened

    def wipe(self, name: str) -> None:
        """Take the disk of a node that is off."""
        self.hosts[name].durable = None

    def command(self, name: str, command: Command) -> None:
        """Ask a node for something, as an operator."""
        self._step(name, Commanded(command))

    def cut(self, one: str, other: str) -> None:
        """Let nothing pass between two nodes."""
        self.network.cut(one, other)
        self.network.cut(other, one)

    def mend(self, one: str, other: str) -> None:
        """Let messages pass again."""
        self.network.mend(one, other)
        self.network.mend(other, one)

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something to the world later."""
        self._later(delay_s, act)

    def kernel(self, name: str) -> Kernel:
        """Return the kernel of a node that is on."""
        kernel = self.hosts[name].kernel
        if kernel is None:
            raise RuntimeError(f"{name} is off")
        return kernel

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Let virtual time pass until something holds; tell whether it did within limit_s."""
        end = self.now + limit_s
        while not until():
            if not self._heap or self._heap[0][0] > end:
                self.now = end
                return False
            self.now, _, act = heapq.heappop(self._heap)
            act()
            if self._count > EVENTS_MAX:
                raise RuntimeError(f"more than {EVENTS_MAX:,} events")
        return True

    def finished(self) -> bool:
        """Tell whether every node that is on has run all its rounds."""
        on = [host.kernel for host in self.hosts.values() if host.kernel is not None]
        return all(kernel.view().life == "finished" for kernel in on)

    @property
    def events(self) -> int:
        """How many events there were."""
        return self._count

    # The machine ----------------------------------------------------------------------------------

    def _later(self, delay: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay, self._count, act))

    def _post(self, name: str, life: int, delay: float, event: Event) -> None:
        """Step a node later, unless it crashed meanwhile."""

        def act() -> None:
            if self.hosts[name].life == life:
                self._step(name, event)

        self._later(delay, act)

    def _step(self, name: str, event: Event) -> None:
        host = self.hosts[name]
        if host.kernel is None:
            return
        if host.waiting is not None:
            host.events.append(event)
            return
        self._go_on(name, host, self._think(name, host.kernel, event))

    def _think(self, name: str, kernel: Kernel, event: Event) -> deque[Effect]:
        effects = kernel.step(self.now + self.hosts[name].clock_s, event)
        for checker in self.checkers:
            checker.stepped(self, name, event, effects)
        return deque(effects)

    def _go_on(self, name: str, host: Host, effects: deque[Effect]) -> None:
        """Perform effects in order, those behind a commit after it, and then take what waited."""
        while True:
            while effects:
                effect = effects.popleft()
                if isinstance(effect, Adopt) and host.disk_s > 0:
                    host.waiting = effects
                    self._commit_later(name, host, effect.snapshot)
                    return
                self._perform(name, host, effect)
            if not host.events or host.kernel is None:
                return
            effects = self._think(name, host.kernel, host.events.popleft())

    def _commit_later(self, name: str, host: Host, snapshot: Snapshot) -> None:
        life = host.life

        def commit() -> None:
            if host.life == life and host.waiting is not None:
                effects, host.waiting = host.waiting, None
                self._adopt(name, host, snapshot)
                self._go_on(name, host, effects)

        self._later(host.disk_s, commit)

    def _perform(self, name: str, host: Host, effect: Effect) -> None:
        match effect:
            case Send(to=peer, message=message, limit_s=limit):
                self._send(name, host.life, peer, message, limit or TIMEOUT_S)
            case Introduce(peer=peer, address=address):
                host.addresses[peer] = address
            case Answer(token=token, code=code, detail=detail):
                self._reply(host.answers.pop(token), code, detail)
            case SetTimer(name=timer, delay_s=delay):
                self._set_timer(name, host, timer, delay)
            case CancelTimer(name=timer):
                host.timers.pop(timer, None)
            case Tune(job=job):
                self._tune(name, host, job)
            case Adopt(snapshot=snapshot):
                self._adopt(name, host, snapshot)
            case Record():
                host.records.append(effect)
                if effect.level == "error":
                    self.errors.append(f"{name}: {effect.text}")

    def _set_timer(self, name: str, host: Host, timer: str, delay: float) -> None:
        number, life = self._count + 1, host.life  # the number of the event that _later adds
        host.timers[timer] = number

        def fire() -> None:
            if host.life == life and host.timers.get(timer) == number:
                del host.timers[timer]
                self._step(name, TimerFired(timer))

        self._later(delay, fire)

    def _tune(self, name: str, host: Host, job: Job) -> None:
        try:
            report = host.learner.tune(job, lambda: False, lambda _: None)
        except FednodeError as fault:
            self._post(name, host.life, host.tune_s, TuneFailed(job, str(fault)))
        else:
            self._post(name, host.life, host.tune_s, Tuned(job, report))

    def _adopt(self, name: str, host: Host, snapshot: Snapshot) -> None:
        if host.full:
            self._post(name, host.life, 0.0, AdoptFailed(snapshot, "no space left"))
            return
        host.durable = snapshot
        if self.memorable:
            host.history.append(snapshot)
        self.watch(name, snapshot)
        self._post(name, host.life, 0.0, Adopted(snapshot))

    # The network ----------------------------------------------------------------------------------

    def _send(self, sender: str, life: int, to: str, message: Message, limit_s: float) -> None:
        address = self.hosts[sender].addresses.get(to, to)
        if address != to:
            reason = f"nobody answers at {address}"
            self._post(sender, life, 0.0, Undelivered(to, message, "unreachable", reason))
            return
        traitor = self.hosts[sender].traitor
        told = False  # a traitor's node hears of one end of what it wanted to send
        for target, said in [(to, message)] if traitor is None else traitor(to, message):
            exchange = Exchange(sender, life, to, message, done=told)
            told = True
            self._fail(exchange, limit_s)
            try:
                decoded = self._through_codec(sender, said)
            except FednodeError:  # a traitor's message that cannot even be written
                continue
            for delay in self.network.arrivals(sender, target):
                self._carry(delay, sender, target, partial(self._arrive, exchange, target, decoded))
        if not told:  # withheld: the traitor's own node is told that it arrived
            self._post(sender, life, 0.0, Delivered(to, message))

    def _carry(self, delay: float, sender: str, to: str, act: Callable[[], None]) -> None:
        """Let something arrive later, where its link is whole then, and not clogged."""

        def arrive() -> None:
            if self.network.passes(sender, to) and not self.network.hold(sender, to, act):
                act()

        self._later(delay, arrive)

    def _arrive(self, exchange: Exchange, to: str, message: Message) -> None:
        host = self.hosts.get(to)
        if host is None or host.kernel is None:
            return
        if message.sender != exchange.sender:  # its key does not say so
            self._reply(replace(exchange, to=to), "refused", "this key is another's")
            return
        token = next(self._tokens)
        host.answers[token] = exchange
        news = tuple(  # as node/identity/trust.py lets it pass: an address from the member itself
            one if one.name == message.sender else replace(one, address="")
            for one in message.members
            if self.admitted(one.name)
        )
        self._step(to, Received(replace(message, members=news), token))

    def _through_codec(self, sender: str, message: Message) -> Message:
        """Return what arrives of a message, and meter it; a broadcast is encoded once."""
        dtype = message.dtype or self.hosts[sender].dtype
        held = self._frame
        if held is None or held[0] is not message or held[1] != dtype:
            frame = codec.encode(message, dtype)
            held = self._frame = (message, dtype, frame, codec.decode(frame))
        if self.memorable:
            self.messages.append(message)
        meter = self.meters.setdefault(message.phase, Meter())
        meter.count(codec.payload_bytes(message, dtype), len(held[2]))
        return held[3]

    def _reply(self, exchange: Exchange, code: AckCode, detail: str) -> None:
        to, message, traitor = exchange.to, exchange.message, self.hosts[exchange.to].traitor
        frame = codec.encode_ack(code, detail)
        if traitor is not None:
            frame = codec.write_ack(*traitor.answer(exchange.sender, message, code, detail))
        event: Delivered | Undelivered
        try:
            event = acknowledged(to, message, *codec.decode_ack(frame))
        except FrameError as fault:
            event = Undelivered(to, message, "unreachable", str(fault))
        for delay in self.network.arrivals(exchange.to, exchange.sender):
            act = partial(self._end, exchange, event)
            self._carry(delay, exchange.to, exchange.sender, act)

    def _fail(self, exchange: Exchange, limit_s: float) -> None:
        """End an exchange after its limit, unless it ended before."""
        to = exchange.to
        event = Undelivered(to, exchange.message, "unreachable", f"{to} does not answer")
        self._later(limit_s, partial(self._end, exchange, event))

    def _end(self, exchange: Exchange, event: Delivered | Undelivered) -> None:
        if not exchange.done and self.hosts[exchange.sender].life == exchange.life:
            exchange.done = True
            self._step(exchange.sender, event)
