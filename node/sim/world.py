"""A mesh in virtual time: kernels, learners and disks in one process, with a network that can fail.

The world performs effects as the daemon does (in order, a Send after an Adopt only once that is
durable, messages through the codec) but time is a number, chance is one seed, and nothing waits. So
a run of hours takes moments and repeats itself exactly.

Set `memorable` to False where runs are long: then messages and snapshots pass by and only meters
stay. `watch` sees every snapshot.

Faults are set by the caller: `crash` and `start` a node, `cut` and `mend` a link, `loss`, and a
disk that is `full`.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from node.core.events import (
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
from node.core.facts import fingerprint
from node.core.kernel import Kernel
from node.core.policy import Context, Policy
from node.core.settings import GuardSettings, MembershipSettings, RoundSettings
from node.core.types import Job, Message, Snapshot
from node.errors import FednodeError
from node.learn.learner import Learner
from node.transports.framing import wire_bytes
from node.wire import codec
from node.wire.codec import Dtype

Build = Callable[[Snapshot | None], Kernel]
"""Make a node's kernel, from what its disk holds (None at its first start)."""

# No run of a mesh that fits into a test takes this many: one that does never ends.
EVENTS_MAX: Final = 5_000_000
TIMEOUT_S: Final = 0.5
"""After which the sender of a lost message gives up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all nodes of a simulated mesh have in common; domains: of those that have one."""

    policy: type[Policy]
    config: Any
    rounds: RoundSettings = field(default_factory=RoundSettings)
    seed: int = 1
    membership: MembershipSettings = field(default_factory=MembershipSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    domains: Mapping[str, str] = field(default_factory=dict)

    def build(self, name: str, peers: tuple[str, ...], learner: Learner) -> Build:
        """Return what makes a node's kernel at each of its starts."""
        facts = {"policy.name": self.policy.name, "policy": str(self.config)}
        mode = self.rounds.mode or self.policy.default_mode
        context = Context(
            name,
            peers,
            "simulated",
            self.policy.name,
            fingerprint(facts),
            self.seed,
            replace(self.rounds, mode=mode),
            learner.samples,
            self.domains.get(name, ""),
        )

        def make(held: Snapshot | None) -> Kernel:
            return Kernel.resume(
                context,
                self.policy,
                self.config,
                lambda: learner.initial(self.seed),
                facts,
                self.membership,
                self.guard,
                held,
            )

        return make


@dataclass(slots=True)
class Meter:
    """Bytes of all nodes' messages of one phase, as sent; answers are not counted.

    payload: numbers alone. serialized: frames. wire: with gRPC and HTTP/2 (an estimate).
    """

    messages: int = 0
    payload: int = 0
    serialized: int = 0
    wire: int = 0

    def count(self, payload: int, frame: int) -> None:
        """Add one message."""
        self.messages += 1
        self.payload += payload
        self.serialized += frame
        self.wire += wire_bytes(frame)


@dataclass(slots=True)
class Host:
    """One node's machine: what runs on it, and what stays when it crashes.

    life: counts starts; what was under way in an earlier life is lost. full: commits fail.
    tune_s: virtual seconds that a tuning takes. durable: what the disk holds. records: for people.
    """

    build: Build
    learner: Learner
    dtype: Dtype
    tune_s: float
    kernel: Kernel | None = None
    life: int = 0
    durable: Snapshot | None = None
    full: bool = False
    timers: dict[str, int] = field(default_factory=dict)
    answers: dict[int, tuple[str, int, Message]] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    history: list[Snapshot] = field(default_factory=list)


class World:
    """All hosts, the links between them, and the one clock; see the file's header.

    seed: of delays and losses. delay_s: shortest and longest time of a message or its answer.
    loss: share (0..1) of messages, and of answers, that never arrive.
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
        self.delay_s = delay_s
        self.loss = loss
        self.messages: list[Message] = []
        self.meters: dict[str, Meter] = {}
        self.memorable = memorable
        self.errors: list[str] = []
        self.watch: Callable[[str, Snapshot], None] = lambda name, snapshot: None
        self._frame: tuple[Message, Dtype, bytes, Message] | None = None
        self._chance = random.Random(seed)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._tokens = itertools.count(1)
        self._cuts: set[frozenset[str]] = set()

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
        dtype: Dtype = getattr(plan.config, "wire_dtype", "float32")
        for name in sorted(learners):
            peers = tuple(sorted(set(learners) - {name}))
            build = plan.build(name, peers, learners[name])
            self.add(name, build, learners[name], dtype, tune_s)
        self.start(*sorted(learners))

    def start(self, *names: str) -> None:
        """Switch nodes on, from what their disks hold."""
        for name in names:
            host = self.hosts[name]
            host.life += 1
            host.timers, host.answers = {}, {}
            host.kernel = host.build(host.durable)
            self._step(name, Started())

    def crash(self, name: str) -> None:
        """Switch a node off at once; only what was durable stays."""
        self.hosts[name].kernel = None

    def command(self, name: str, command: Command) -> None:
        """Ask a node for something, as an operator."""
        self._step(name, Commanded(command))

    def cut(self, one: str, other: str) -> None:
        """Let nothing pass between two nodes."""
        self._cuts.add(frozenset({one, other}))

    def mend(self, one: str, other: str) -> None:
        """Let messages pass again."""
        self._cuts.discard(frozenset({one, other}))

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
        for effect in host.kernel.step(self.now, event):
            self._perform(name, host, effect)

    def _perform(self, name: str, host: Host, effect: Effect) -> None:
        match effect:
            case Send(to=peer, message=message, limit_s=limit):
                self._send(name, host.life, peer, message, limit or TIMEOUT_S)
            case Introduce():
                pass  # a name is an address here
            case Answer(token=token, code=code, detail=detail):
                sender, life, message = host.answers.pop(token)
                self._reply(name, sender, life, acknowledged(name, message, code, detail))
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
        decoded = self._through_codec(sender, message)

        def arrive() -> None:
            host = self.hosts.get(to)
            if host is None or host.kernel is None or frozenset({sender, to}) in self._cuts:
                self._fail(sender, life, to, message)
                return
            token = next(self._tokens)
            host.answers[token] = (sender, life, message)
            self._step(to, Received(decoded, token))

        if self._lost():
            self._fail(sender, life, to, message)
        else:
            self._later(self._chance.uniform(*self.delay_s), arrive)

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

    def _reply(self, answerer: str, sender: str, life: int, event: Delivered | Undelivered) -> None:
        if self._lost() or frozenset({sender, answerer}) in self._cuts:
            self._fail(sender, life, answerer, event.message)
        else:
            self._post(sender, life, self._chance.uniform(*self.delay_s), event)

    def _fail(self, sender: str, life: int, to: str, message: Message) -> None:
        fault = Undelivered(to, message, "unreachable", f"{to} does not answer")
        self._post(sender, life, TIMEOUT_S, fault)

    def _lost(self) -> bool:
        return self.loss > 0 and self._chance.random() < self.loss
