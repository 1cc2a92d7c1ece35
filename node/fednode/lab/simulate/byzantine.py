"""Hostile nodes: each kind changes the messages and answers of a correct node.

    sign-flip      sends the opposite of its change, three times as large
    noise          sends random numbers
    nan            sends NaN in place of every number
    huge           sends 1e30 in place of every number
    wrong-schema   sends arrays with other names and shapes
    replay         sends old messages again
    free-rider     sends the initial prompts, untrained
    far-round      claims a round that no node has reached
    impostor       sends messages in another node's name
    gossip         spreads false news about other members
    false-state    claims to be ahead, and gives invented arrays as its state
    flood          sends each message ten times
    equivocate     sends different arrays to each peer
    collude        claims a far round, gives a false state, and claims that it holds that state
    withhold       accepts requests for its state and never answers them
    readdress      claims other addresses in membership messages; most of them do not exist
    busy-helper    refuses to ping a third node when a peer asks it to
    far-word       claims a far round in each message without arrays, and contributes as it should
    again-flood    asks its peers ten times with each message to repeat what they sent
    busy           accepts no arrays: it answers "busy" to every message that carries some
    slow           holds each message with arrays back until it has sent sixty other messages
    false-past     says that each peer was in far rounds before, and changes its own boot id
    foreign-text   puts escape sequences and markup wherever the protocol allows text
    renamed        gives the rows of each class to the next class name (policies that name classes)

Label-flipped training is an honest node with a hostile learner (Flipped).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fednode.core.events import AckCode
from fednode.core.rounds.catchup import ADOPTED, STATE, WANT, adopted_round
from fednode.core.rounds.exchange import AGAIN
from fednode.core.types import PHASES, Job, Message, Phase, Progress, Report, Tensors, Update
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


def liar(
    kind: str,
    names: tuple[str, ...],
    generator: random.Random,
    first: Tensors,
    plot: Plot | None = None,
) -> Liar:
    """Return the behaviour of a hostile node. Raise KeyError if the kind is unknown.

    first: the node's initial prompts. plot: the common plan of all colluding nodes of a mesh.
    """
    if kind == COLLUDE and plot is not None:
        return _colluding(plot)
    return KINDS[kind](names, generator, first)


def _changing(change: Callable[[Message], Message]) -> Callable[[str, Message], Said]:
    """Return what sends each message with a change."""
    return lambda to, message: [(to, change(message))]


def _each(change: Callable[[Tensors], Tensors]) -> Liar:
    """Change the arrays of each message; send messages without arrays unchanged."""

    def changed(message: Message) -> Message:
        if not message.tensors:
            return message
        return replace(message, tensors=change(message.tensors))

    return Liar(_changing(changed))


def _sign_flip(_: tuple[str, ...], __: random.Random, first: Tensors) -> Liar:
    def change(tensors: Tensors) -> Tensors:
        turned = {
            name: (base - ENLARGED * (array - base))
            for name, array in tensors.items()
            for base in [first[name] if name in first and first[name].shape == array.shape else 0]
        }
        return Tensors(turned, tensors.classes)

    return _each(change)


def _noise(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def change(tensors: Tensors) -> Tensors:
        numbers = np.random.default_rng(generator.getrandbits(32))
        drawn = {name: numbers.normal(0, 3, array.shape) for name, array in tensors.items()}
        return Tensors(drawn, tensors.classes)

    return _each(change)


def _filled(value: float) -> Callable[..., Liar]:
    return lambda _, __, ___: _each(lambda tensors: _all(value, tensors))


def _all(value: float, tensors: Tensors) -> Tensors:
    filled = {name: np.full(one.shape, value) for name, one in tensors.items()}
    return Tensors(filled, tensors.classes)


def _wrong_schema(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def change(tensors: Tensors) -> Tensors:
        shape = (generator.randrange(1, 9), generator.randrange(1, 9))
        return Tensors({generator.choice([*tensors, "weights"]): np.ones(shape)})

    return _each(change)


def _replay(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    said: list[Message] = []

    def say(to: str, message: Message) -> Said:
        said.append(message)
        del said[:-OLD_MAX]
        return [(to, message), *((to, generator.choice(said)) for _ in range(2))]

    return Liar(say)


def _free_rider(_: tuple[str, ...], __: random.Random, first: Tensors) -> Liar:
    def change(tensors: Tensors) -> Tensors:
        same = all(name in first and first[name].shape == tensors[name].shape for name in tensors)
        return Tensors({name: first[name] for name in tensors}) if same else tensors

    return _each(change)


def _far_round(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def far(message: Message) -> Message:
        return replace(message, round=message.round + generator.choice([3, 1000, FAR]))

    return Liar(_changing(far))


def _impostor(names: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def say(to: str, message: Message) -> Said:
        return [(to, message), (to, replace(message, sender=generator.choice(names)))]

    return Liar(say)


def _gossip(names: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def untrue(message: Message) -> Message:
        about, age = generator.choice(names), generator.choice([0, 1, 5, 10**6])
        state = generator.choice(["dead", "left", "suspect", "alive"])
        rumour = Update(about, state, age)  # type: ignore[arg-type]
        strange = Update(f"nobody-{generator.randrange(1000)}", "alive")
        return replace(message, members=(*message.members, rumour, strange))

    return Liar(_changing(untrue))


def _false_state(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def ahead(message: Message) -> Message:
        far = replace(message, round=message.round + 3)
        if message.phase != STATE:
            return far
        facts = {ADOPTED: str(message.round + 3)}
        return replace(far, tensors=_all(FALSE, message.tensors), facts=facts)

    return Liar(_changing(ahead))


def _flood(_: tuple[str, ...], __: random.Random, ___: Tensors) -> Liar:
    return Liar(lambda to, message: [(to, message)] * FLOOD)


def _equivocate(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    return _each(
        lambda tensors: Tensors(
            {name: array + generator.gauss(0.0, 1.0) for name, array in tensors.items()},
            tensors.classes,
        )
    )


def _colluding(plot: Plot) -> Liar:
    def ahead(message: Message) -> Message:
        far = replace(message, round=message.round + plot.ahead)
        if message.phase != STATE:
            return replace(far, base=plot.digest or message.base)
        made, number = _all(FALSE, message.tensors), adopted_round(message) + plot.ahead
        plot.digest = made.digest
        return replace(far, tensors=made, facts={ADOPTED: str(number)})

    return Liar(_changing(ahead))


def _collude(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    return _colluding(Plot.drawn(generator))


def _withhold(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    ahead = generator.choice([0, 3, FAR])

    def say(to: str, message: Message) -> Said:
        if message.phase == STATE:
            return []
        return [(to, replace(message, round=message.round + ahead))]

    def answer(_: str, message: Message, code: AckCode, detail: str) -> tuple[AckCode, str]:
        return ("ok", "") if message.phase == WANT else (code, detail)

    return Liar(say, answer)


def _readdress(names: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def elsewhere(message: Message) -> Message:
        if message.phase not in PHASES:
            return message
        place = generator.choice([*PLACES, *names])
        own = Update(message.sender, "alive", generator.randrange(100), place)
        return replace(message, members=(own, *message.members))

    return Liar(_changing(elsewhere))


def _busy_helper(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def answer(_: str, message: Message, code: AckCode, detail: str) -> tuple[AckCode, str]:
        asked = message.phase == Phase.INDIRECT
        return (generator.choice(EXCUSES), "") if asked else (code, detail)

    return Liar(lambda to, message: [(to, message)], answer)


def _far_word(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    ahead = generator.choice([3, 1000, FAR])

    def far(message: Message) -> Message:
        return message if message.tensors else replace(message, round=message.round + ahead)

    return Liar(_changing(far))


def _again_flood(_: tuple[str, ...], __: random.Random, ___: Tensors) -> Liar:
    def say(to: str, message: Message) -> Said:
        asks = replace(message, phase=AGAIN, round=0, tensors=Tensors({}), facts={}, members=())
        return [(to, message), *[(to, asks)] * FLOOD]

    return Liar(say)


def _busy(_: tuple[str, ...], __: random.Random, ___: Tensors) -> Liar:
    def answer(_: str, message: Message, code: AckCode, detail: str) -> tuple[AckCode, str]:
        return ("busy", "later") if message.tensors else (code, detail)

    return Liar(lambda to, message: [(to, message)], answer)


def _slow(_: tuple[str, ...], __: random.Random, ___: Tensors) -> Liar:
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


def _false_past(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def later(_: int) -> int:
        return generator.choice([1, 10, FAR])

    def reborn(message: Message) -> Message:
        if not message.boot or generator.random() < 0.5:
            return message
        return replace(message, boot=generator.choice(["a0a0a0a0", "b0b0b0b0"]))

    return Liar(_changing(reborn), later=later)


def _foreign_text(_: tuple[str, ...], generator: random.Random, __: Tensors) -> Liar:
    def marked(message: Message) -> Message:
        text = generator.choice(NASTY)
        if message.phase not in PHASES or generator.random() < 0.5:
            return message
        if generator.random() < 0.5:
            facts = dict.fromkeys(("policy.name", text[:40]), text)
            return replace(message, facts=facts, fingerprint="00")
        own = Update(message.sender, "alive", 0, text[:200])
        return replace(message, members=(own, *message.members))

    def answer(_: str, __: Message, code: AckCode, detail: str) -> tuple[AckCode, str]:
        if generator.random() < 0.5:
            return code, detail
        return generator.choice(EXCUSES), generator.choice(NASTY)

    return Liar(_changing(marked), answer)


def _renamed(_: tuple[str, ...], __: random.Random, ___: Tensors) -> Liar:
    def change(tensors: Tensors) -> Tensors:
        count = len(tensors.classes)
        turned = {
            name: np.roll(one, 1, axis=0) if count and len(one) == count else one
            for name, one in tensors.items()
        }
        return Tensors(turned, tensors.classes)

    return _each(change)


KINDS: Final[Mapping[str, Callable[[tuple[str, ...], random.Random, Tensors], Liar]]] = {
    "sign-flip": _sign_flip,
    "noise": _noise,
    "nan": _filled(float("nan")),
    "huge": _filled(1e30),
    "wrong-schema": _wrong_schema,
    "replay": _replay,
    "free-rider": _free_rider,
    "far-round": _far_round,
    "impostor": _impostor,
    "gossip": _gossip,
    "false-state": _false_state,
    "flood": _flood,
    "equivocate": _equivocate,
    COLLUDE: _collude,
    "withhold": _withhold,
    "readdress": _readdress,
    "busy-helper": _busy_helper,
    "far-word": _far_word,
    "again-flood": _again_flood,
    "busy": _busy,
    "slow": _slow,
    "false-past": _false_past,
    "foreign-text": _foreign_text,
    "renamed": _renamed,
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
