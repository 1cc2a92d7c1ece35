"""Settings documents of a scenario: drawn from the seed, proposed in the world, and judged.

Hostile members pass on what nobody signed, pass old documents on again, and say at random under
which documents they run. Operators accept, refuse, or decide nothing.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from fednode.core.documents import NONE, order
from fednode.core.events import Answer, Effect, Event, Offered, Received, Switch
from fednode.core.members.phases import PHASES, Phase
from fednode.core.policy import PolicyKind
from fednode.core.settings import STRICT, bounded
from fednode.core.types import Document, Message, Terms
from fednode.lab.simulate.check import Check, Violation
from fednode.sim.desk import Desk
from fednode.sim.host import Liar
from fednode.sim.setup import Setup
from fednode.sim.world import World

LIE: Final = "false-settings"
SAME_NUMBER: Final = 0.4
"""Share of proposals that have the number of the one before: two at once."""
MORE_ROUNDS: Final = 1.5
"""Most rounds under a document, as a multiple of those before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSettings:
    """What may happen to the mesh's settings.

    proposals: the most that a seed draws. refuse, ignore: shares (0..1) of decisions by which an
    operator refuses a document, or decides nothing. liars: the most members that lie about
    documents.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    proposals: int = 3
    refuse: float = 0.1
    ignore: float = 0.1
    liars: int = 1

    def __post_init__(self) -> None:
        bounded("documents.proposals", self.proposals, 1)
        bounded("documents.refuse", self.refuse, 0, 1)
        bounded("documents.ignore", self.ignore, 0, 1 - self.refuse)
        bounded("documents.liars", self.liars, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnDocument:
    """A proposal: when (virtual seconds), by whom, and what it changes.

    mesh: the place of the policy in the scenario's list; None if it stays.
    """

    at: float
    by: str
    number: int
    start: int
    rounds: int
    mesh: int | None

    def __str__(self) -> str:
        policy = "" if self.mesh is None else f", policy {self.mesh}"
        return (
            f"{self.at:.2f} s {self.by} proposes settings {self.number} from round {self.start} "
            f"on: {self.rounds} rounds{policy}"
        )


def draw_documents(
    settings: DocumentSettings,
    names: tuple[str, ...],
    meshes: int,
    rounds: int,
    end_s: float,
    chance: random.Random,
) -> tuple[tuple[DrawnDocument, ...], dict[str, str]]:
    """Return the proposals of a seed, and the lie of each member that lies, by name."""
    drawn: list[DrawnDocument] = []
    number = 0
    for at in sorted(
        chance.uniform(0, end_s) for _ in range(chance.randint(0, settings.proposals))
    ):
        number += 0 if drawn and chance.random() < SAME_NUMBER else 1
        drawn.append(
            DrawnDocument(
                at=at,
                by=chance.choice(names),
                number=number,
                start=chance.randint(1, rounds),
                rounds=chance.randint(rounds, int(MORE_ROUNDS * rounds)),
                mesh=chance.choice([None, *range(meshes)]),
            )
        )
    lying = chance.sample(names, chance.randint(0, min(settings.liars, len(names) - 2)))
    return tuple(drawn), dict.fromkeys(sorted(lying), LIE)


@dataclass(slots=True)
class Proposals:
    """The proposals of one run, in a world whose nodes run with a setup."""

    world: World
    setup: Setup
    settings: DocumentSettings
    seed: int
    documents: list[Document] = field(default_factory=list)

    def schedule(
        self, drawn: Sequence[DrawnDocument], kinds: Sequence[tuple[PolicyKind, Any]]
    ) -> None:
        """Enter proposals into the world's clock, and put an operator before each node."""
        for name, host in self.world.hosts.items():
            host.desk.decide = self._operator(name)
        for one in drawn:
            self._plan(one, kinds)

    def _plan(self, one: DrawnDocument, kinds: Sequence[tuple[PolicyKind, Any]]) -> None:
        proof = f"{self.seed} {one}".encode()
        digest = hashlib.sha256(proof).hexdigest()[:32]
        changed = replace(self.setup, rounds=replace(self.setup.rounds, max=one.rounds))
        if one.mesh is not None:
            kind, config = kinds[one.mesh]
            changed = replace(changed, policy=kind, config=config)
        self.setup.amended[digest] = changed
        document = Document(one.number, digest, one.start, proof)
        self.world.at(one.at, lambda: self._propose(one.by, document))

    def _propose(self, name: str, document: Document) -> None:
        host = self.world.hosts[name]
        if host.kernel is None:
            return  # its machine is off
        self.world.signed[document.proof] = document
        self.documents.append(document)
        host.desk.decided[document.digest] = True
        self.world.tell(name, Offered(document))

    def _operator(self, name: str) -> Any:
        return lambda document: self.answer(name, document.digest)

    def answer(self, name: str, digest: str) -> bool | None:
        """Return what a node's operator decides on a document: the same whenever it is asked."""
        drawn = random.Random(f"{self.seed} {name} {digest}").random()
        if drawn < self.settings.refuse:
            return False
        return None if drawn < self.settings.refuse + self.settings.ignore else True

    def decide_again(self) -> None:
        """Let each operator decide once more, because a full disk may have kept a node back."""
        for name, host in self.world.hosts.items():
            for decision in host.desk.again():
                self.world.tell(name, decision)

    def settled(self, honest: Sequence[str]) -> str:
        """Return which honest node does not run under the newest document that it accepts; ""."""
        known = [one for name in honest for one in self.world.hosts[name].desk.held.values()]
        for name in honest:
            desk = self.world.hosts[name].desk
            missing = sorted({one.number for one in known if one.digest not in desk.held})
            newest = max((order(one) for one in desk.held.values()), default=(0, 0))
            if any(order(one) > max(newest, order(desk.force)) for one in known):
                return f"{name} does not know settings {missing[-1]}"
            taken = [one for digest, one in desk.held.items() if desk.decided.get(digest)]
            wanted = max(taken, key=order, default=NONE)
            if order(wanted) > order(desk.force):
                return f"{name} runs under settings {desk.force.number}, and took {wanted.number}"
        return ""


def lying(chance: random.Random, proposals: Proposals) -> Liar:
    """Return a member that lies about documents; its prompts are sound."""

    def say(to: str, message: Message) -> list[tuple[str, Message]]:
        if message.phase not in PHASES:
            return [(to, message)]
        genuine = [one.digest for one in proposals.documents]
        choices = ["", f"{chance.getrandbits(128):032x}", *genuine]
        terms = Terms(*(chance.choice(choices) for _ in range(3)))
        said = [(to, replace(message, terms=terms))]
        if chance.random() < 0.3:
            bodies = [f"forged {chance.random()}".encode(), *proposals.world.signed]
            passed = Document(proof=chance.choice(bodies))
            plain = replace(message, phase=Phase.SETTINGS, members=(), facts={}, terms=terms)
            said.append((to, replace(plain, document=passed)))
        return said

    return Liar(say)


@dataclass(slots=True)
class OneDocumentARound(Check):
    """No two sites of one round run under different documents, and none under one unasked.

    A node goes only to a document that was signed, that its operator accepted, and that is newer
    than the one in force. It takes no message of a round whose sender ran under other settings.
    """

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Judge each switch, and each message of a round that the node takes."""
        if name in self.liars:
            return
        desk = world.hosts[name].desk
        for effect in effects:
            if isinstance(effect, Switch):
                self._judge(world, name, effect.document, desk)
        if isinstance(event, Received) and event.message.phase not in PHASES:
            taken = any(
                isinstance(one, Answer) and one.token == event.token and one.code == "ok"
                for one in effects
            )
            if taken and event.message.fingerprint != world.kernel(name).context.fingerprint:
                text = (
                    f"takes a {event.message.phase!r} of {event.message.sender}, of other settings"
                )
                raise self.broken(world, name, text)

    def _judge(self, world: World, name: str, document: Document, desk: Desk) -> None:
        number, force = document.number, desk.force
        if world.signed.get(document.proof) != document:
            raise self.broken(world, name, f"begins settings {number}, which nobody signed")
        if not desk.decided.get(document.digest):  # which outlives a crash
            raise self.broken(world, name, f"begins settings {number}, which it did not accept")
        if order(document) <= order(force):
            raise self.broken(world, name, f"goes from settings {force.number} to {number}")


def place_documents(
    world: World,
    setup: Setup,
    settings: DocumentSettings | None,
    drawn: Sequence[DrawnDocument],
    liars: Mapping[str, str],
    kinds: Sequence[tuple[PolicyKind, Any]],
    seed: int,
) -> Proposals | None:
    """Put the proposals of a seed into a world; None if the scenario has none."""
    if settings is None:
        return None
    proposals = Proposals(world, setup, settings, seed)
    proposals.schedule(drawn, kinds)
    for name, lie in liars.items():
        if lie == LIE:
            world.hosts[name].liar = lying(random.Random(f"{seed} {name}"), proposals)
    world.checkers.append(OneDocumentARound(liars=tuple(liars)))
    return proposals


def unsettled(proposals: Proposals | None, honest: Sequence[str]) -> str:
    """Return which honest node does not run under the newest document that it accepts; ""."""
    return "" if proposals is None else proposals.settled(honest)


def require_settled(proposals: Proposals | None, honest: Sequence[str]) -> None:
    """Raise Violation if there is such a node."""
    if text := unsettled(proposals, honest):
        raise Violation("AllEndsWell", text)
