"""Hostile nodes: each kind changes the messages and answers of a correct node (KINDS).

Label-flipped training is an honest node with a hostile learner (Flipped).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fednode.core.events import AckCode
from fednode.core.rounds.catchup import ADOPTED, STATE, WANT, adopted_round
from fednode.core.rounds.exchange import AGAIN
from fednode.core.types import (
    EMPTY,
    PHASES,
    Array,
    Job,
    MemberUpdate,
    Message,
    Phase,
    Progress,
    Report,
    Tensors,
)
from fednode.lab.sim.host import Liar
from fednode.learn.learner import Learner

Said = list[tuple[str, Message]]
FLIPPED: Final = "label-flip"
COLLUDE: Final = "collude"
COLLUDE_SHARE: Final = 0.1
"""Share of seeds in which all hostile nodes collude, if the scenario has other kinds, too."""
COLLUDING_MIN: Final = 2
ENLARGED: Final = 3.0
FLOOD: Final = 10
HELD: Final = 60
FAR: Final = 10**9
OLD_MAX: Final = 50
PLACES: Final = ("127.0.0.1:1", "[/ghost]", "nowhere", "::1", "example.org:99999")
NASTY: Final = (
    "\x1b]52;c;Y2xpcA==\x07",
    "\x1b[2J",
    "[/ghost]",
    "[link=x]",
    "\u202ecba",
    "x" * 4000,
)
EXCUSES: Final[tuple[AckCode, ...]] = ("busy", "refused", "stale", "invalid")
FALSE: Final = 7.0


@dataclass(slots=True)
class Plot:
    """The plan of colluding nodes: how many rounds ahead they claim to be, and their false state.

    digest: of the false state that they give; "" until a node asked for one.
    """

    ahead: int = 3
    digest: str = ""

    @classmethod
    def drawn(cls, generator: random.Random) -> Plot:
        """Draw a plan. If `ahead` is 0, the nodes lie only about the state, not the round."""
        return cls(generator.choice([0, 3, 1000, 10**6]))


@dataclass(frozen=True, slots=True)
class Hostile:
    """What a hostile node knows.

    first: its initial prompts. plot: the plan of all colluding nodes of a mesh; None for its own.
    """

    names: tuple[str, ...]
    chance: random.Random
    first: Tensors
    plot: Plot | None = None


Kind = Callable[[Hostile], Liar]


def _messages(change: Callable[[Hostile, Message], Message]) -> Kind:
    return lambda node: Liar(lambda to, message: [(to, change(node, message))])


def _arrays(change: Callable[[Hostile, Tensors], Tensors]) -> Kind:
    """Change the arrays of each message; send messages without arrays unchanged."""

    def changed(node: Hostile, message: Message) -> Message:
        if not message.tensors:
            return message
        return replace(message, tensors=change(node, message.tensors))

    return _messages(changed)


def _more(more: Callable[[Hostile, Message], Sequence[Message]]) -> Kind:
    """Send more messages after each message, to the same node."""
    return lambda node: Liar(
        lambda to, message: [(to, message), *((to, one) for one in more(node, message))]
    )


def _answers(answer: Callable[[Hostile, Message, AckCode, str], tuple[AckCode, str]]) -> Kind:
    return lambda node: Liar(answer=lambda _, *given: answer(node, *given))


def _sign_flip(node: Hostile, tensors: Tensors) -> Tensors:
    turned = {
        name: (base - ENLARGED * (array - base))
        for name, array in tensors.items()
        for base in [node.first[name] if _fits(node, name, array) else 0]
    }
    return Tensors(turned, tensors.classes)


def _fits(node: Hostile, name: str, array: Array) -> bool:
    return name in node.first and node.first[name].shape == array.shape


def _noise(node: Hostile, tensors: Tensors) -> Tensors:
    numbers = np.random.default_rng(node.chance.getrandbits(32))
    drawn = {name: numbers.normal(0, 3, array.shape) for name, array in tensors.items()}
    return Tensors(drawn, tensors.classes)


def _filled(value: float) -> Kind:
    return _arrays(lambda _, tensors: _all(value, tensors))


def _all(value: float, tensors: Tensors) -> Tensors:
    filled = {name: np.full(one.shape, value) for name, one in tensors.items()}
    return Tensors(filled, tensors.classes)


def _wrong_schema(node: Hostile, tensors: Tensors) -> Tensors:
    shape = (node.chance.randrange(1, 9), node.chance.randrange(1, 9))
    return Tensors({node.chance.choice([*tensors, "weights"]): np.ones(shape)})


def _replay(node: Hostile) -> Liar:
    said: list[Message] = []

    def say(to: str, message: Message) -> Said:
        said.append(message)
        del said[:-OLD_MAX]
        return [(to, message), *((to, node.chance.choice(said)) for _ in range(2))]

    return Liar(say)


def _free_rider(node: Hostile, tensors: Tensors) -> Tensors:
    same = all(_fits(node, name, array) for name, array in tensors.items())
    return Tensors({name: node.first[name] for name in tensors}) if same else tensors


def _far_round(node: Hostile, message: Message) -> Message:
    return replace(message, round=message.round + node.chance.choice([3, 1000, FAR]))


def _impostor(node: Hostile, message: Message) -> Sequence[Message]:
    return [replace(message, sender=node.chance.choice(node.names))]


def _gossip(node: Hostile, message: Message) -> Message:
    about, age = node.chance.choice(node.names), node.chance.choice([0, 1, 5, 10**6])
    state = node.chance.choice(["dead", "left", "suspect", "alive"])
    rumour = MemberUpdate(about, state, age)  # type: ignore[arg-type]
    strange = MemberUpdate(f"nobody-{node.chance.randrange(1000)}", "alive")
    return replace(message, members=(*message.members, rumour, strange))


def _false_state(_: Hostile, message: Message) -> Message:
    far = replace(message, round=message.round + 3)
    if message.phase != STATE:
        return far
    facts = {ADOPTED: str(message.round + 3)}
    return replace(far, tensors=_all(FALSE, message.tensors), facts=facts)


def _equivocate(node: Hostile, tensors: Tensors) -> Tensors:
    apart = {name: array + node.chance.gauss(0.0, 1.0) for name, array in tensors.items()}
    return Tensors(apart, tensors.classes)


def _collude(node: Hostile) -> Liar:
    plot = node.plot or Plot.drawn(node.chance)

    def ahead(to: str, message: Message) -> Said:
        far = replace(message, round=message.round + plot.ahead)
        if message.phase != STATE:
            return [(to, replace(far, base=plot.digest or message.base))]
        made, number = _all(FALSE, message.tensors), adopted_round(message) + plot.ahead
        plot.digest = made.digest
        return [(to, replace(far, tensors=made, facts={ADOPTED: str(number)}))]

    return Liar(ahead)


def _withhold(node: Hostile) -> Liar:
    ahead = node.chance.choice([0, 3, FAR])

    def say(to: str, message: Message) -> Said:
        if message.phase == STATE:
            return []
        return [(to, replace(message, round=message.round + ahead))]

    def answer(_: str, message: Message, code: AckCode, detail: str) -> tuple[AckCode, str]:
        return ("ok", "") if message.phase == WANT else (code, detail)

    return Liar(say, answer)


def _readdress(node: Hostile, message: Message) -> Message:
    if message.phase not in PHASES:
        return message
    place = node.chance.choice([*PLACES, *node.names])
    own = MemberUpdate(message.sender, "alive", node.chance.randrange(100), place)
    return replace(message, members=(own, *message.members))


def _busy_helper(
    node: Hostile, message: Message, code: AckCode, detail: str
) -> tuple[AckCode, str]:
    asked = message.phase == Phase.INDIRECT
    return (node.chance.choice(EXCUSES), "") if asked else (code, detail)


def _far_word(node: Hostile) -> Liar:
    ahead = node.chance.choice([3, 1000, FAR])

    def far(to: str, message: Message) -> Said:
        return [(to, message if message.tensors else replace(message, round=message.round + ahead))]

    return Liar(far)


def _again_flood(_: Hostile, message: Message) -> Sequence[Message]:
    return [replace(message, phase=AGAIN, round=0, tensors=EMPTY, facts={}, members=())] * FLOOD


def _busy(_: Hostile, message: Message, code: AckCode, detail: str) -> tuple[AckCode, str]:
    return ("busy", "later") if message.tensors else (code, detail)


def _slow(_: Hostile) -> Liar:
    """Hold messages with arrays back; a hostile node has no clock, and counts its messages."""
    held: list[tuple[int, str, Message]] = []
    count = 0

    def say(to: str, message: Message) -> Said:
        nonlocal count, held
        count += 1
        due = [(peer, reply) for until, peer, reply in held if until <= count]
        held = [waiting for waiting in held if waiting[0] > count]
        if message.tensors:
            held.append((count + HELD, to, message))
            return due
        return [(to, message), *due]

    return Liar(say)


def _false_past(node: Hostile) -> Liar:
    def reborn(to: str, message: Message) -> Said:
        if message.boot and node.chance.random() >= 0.5:
            message = replace(message, boot=node.chance.choice(["a0a0a0a0", "b0b0b0b0"]))
        return [(to, message)]

    return Liar(reborn, later=lambda _: node.chance.choice([1, 10, FAR]))


def _foreign_text(node: Hostile) -> Liar:
    chance = node.chance

    def marked(to: str, message: Message) -> Said:
        text = chance.choice(NASTY)
        if message.phase not in PHASES or chance.random() < 0.5:
            return [(to, message)]
        if chance.random() < 0.5:
            facts = dict.fromkeys(("policy.name", text[:40]), text)
            return [(to, replace(message, facts=facts, fingerprint="00"))]
        own = MemberUpdate(message.sender, "alive", 0, text[:200])
        return [(to, replace(message, members=(own, *message.members)))]

    def answer(_: str, __: Message, code: AckCode, detail: str) -> tuple[AckCode, str]:
        if chance.random() < 0.5:
            return code, detail
        return chance.choice(EXCUSES), chance.choice(NASTY)

    return Liar(marked, answer)


def _renamed(_: Hostile, tensors: Tensors) -> Tensors:
    count = len(tensors.classes)
    turned = {
        name: np.roll(one, 1, axis=0) if count and len(one) == count else one
        for name, one in tensors.items()
    }
    return Tensors(turned, tensors.classes)


KINDS: Final[Mapping[str, Kind]] = {
    # The opposite of its change, three times as large.
    "sign-flip": _arrays(_sign_flip),
    # Random numbers; NaN or 1e30 in place of every number; arrays of other names and shapes.
    "noise": _arrays(_noise),
    "nan": _filled(float("nan")),
    "huge": _filled(1e30),
    "wrong-schema": _arrays(_wrong_schema),
    # Old messages again.
    "replay": _replay,
    # The initial prompts, untrained.
    "free-rider": _arrays(_free_rider),
    # A round that no node has reached; in "far-word" only in messages without arrays.
    "far-round": _messages(_far_round),
    "far-word": _far_word,
    # Messages in another node's name.
    "impostor": _more(_impostor),
    # False news about other members.
    "gossip": _messages(_gossip),
    # Claims to be ahead, and gives invented arrays as its state.
    "false-state": _messages(_false_state),
    # The same, and claims that it holds the state that other such nodes give.
    COLLUDE: _collude,
    # Each message ten times; ten requests to repeat with each message.
    "flood": _more(lambda _, message: [message] * (FLOOD - 1)),
    "again-flood": _more(_again_flood),
    # Different arrays to each peer.
    "equivocate": _arrays(_equivocate),
    # Accepts requests for its state and never answers them.
    "withhold": _withhold,
    # Other addresses in membership messages; most of them do not exist.
    "readdress": _messages(_readdress),
    # Refuses to ping a third node; answers "busy" to every message with arrays.
    "busy-helper": _answers(_busy_helper),
    "busy": _answers(_busy),
    # Holds each message with arrays back until it has sent sixty other messages.
    "slow": _slow,
    # Says that each peer was in far rounds before, and changes its own boot id.
    "false-past": _false_past,
    # Escape sequences and markup wherever the protocol allows text.
    "foreign-text": _foreign_text,
    # The rows of each class under the next class name (policies that name classes).
    "renamed": _arrays(_renamed),
}


class Flipped:
    """A learner that moves away from where its inner learner moves, as with flipped labels."""

    def __init__(self, inner: Learner) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        report = self._inner.tune(job, cancelled, progress)
        turned = {name: 2 * job.tensors[name] - one for name, one in report.tensors.items()}
        return replace(report, tensors=Tensors(turned))
