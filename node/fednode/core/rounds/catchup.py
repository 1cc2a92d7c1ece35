"""Catch-up: a node that is behind, or that drifted, takes over the state of others.

transfer.py decides when enough members confirm a state, proof.py how many are enough. This module
decides when to ask, what to answer, and in which round and with which state the node continues; the
engine carries that out. No round waits for a catch-up. The node takes over a state that most
members hold while its round waits for peers, after the tuning under way, or when the next round
begins. If most members are further ahead but no state has so many holders, the node continues in
their round with its own prompts. If their round is not known either, it stays in its own round. In
both cases the node writes a record. It asks at most once per deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from fednode.core.events import CancelTimer, Effect, Record, Send, SetTimer
from fednode.core.policy import CATCH_UP, DEADLINE, RESEND, RESEND_S, NodeContext
from fednode.core.rounds.decision import Decision, Standing, decide
from fednode.core.rounds.method import MethodState
from fednode.core.rounds.proof import half, quorum, reached
from fednode.core.rounds.stragglers import Stragglers
from fednode.core.rounds.transfer import (
    ADOPTED,
    OF,
    STATE,
    VOUCH,
    WANT,
    WITNESS,
    Destination,
    Transfer,
)
from fednode.core.types import EMPTY, Json, Message, Tensors

NEVER = 10**18
"""Later than any round."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a node is.

    number: the round under way. adopted: the round adopted last. held: the state after it. live,
    known: the other members, those that are live and all. newest: the newest round that each member
    contributed to, 0 if there was none. span: over how many rounds each member contributes once.
    """

    number: int
    adopted: int
    held: MethodState
    live: Set[str]
    known: Set[str]
    newest: Mapping[str, int]
    span: int = 1

    def round_of(self, peer: str) -> int:
        """Return the newest round that a peer contributed to; 0 if there was none."""
        return self.newest.get(peer, 0)


class CatchUp:
    """One node's attempts to take over the state of others, and its answers to theirs.

    drifts, trusting: as in `Method`. stragglers: a peer that withholds its state is noted there,
    too.
    """

    def __init__(
        self,
        context: NodeContext,
        stragglers: Stragglers,
        *,
        drifts: bool,
        trusting: bool,
    ) -> None:
        self.context = context
        self.stragglers = stragglers
        self.drifts = drifts
        self.trusting = trusting
        self._transfer = Transfer()
        self._unheard: dict[tuple[str, str], Message] = {}  # by peer and phase, to be sent again

    def adopted(self, number: int, held: MethodState) -> None:
        """Remember what this node's own state was after a round."""
        self._transfer.adopted(number, held.packed())

    def decide(self, number: int, *, told: bool, waits: bool) -> Decision:
        """Return where the node goes on, and forget the destination that was confirmed.

        number: its round now. told, waits: as in `Standing`.
        """
        to, self._transfer.destination = self._transfer.destination, None
        last = self._last(number)
        at = Standing(number=number, last=last, drifts=self.drifts, told=told, waits=waits)
        return decide(at, to)

    def _last(self, number: int) -> int:
        """Return the last round that a catch-up may move a node to. number: its round now."""
        last = self.context.rounds.max
        return max(last, number) if last else NEVER

    def left(self) -> list[Effect]:
        """Return what ends with the round that the node leaves: its timers.

        After a failed attempt the timer goes on: until it fires, the next attempt does not begin.
        """
        ended: list[Effect] = [CancelTimer(DEADLINE)]
        return ended if self._transfer.resting else [*ended, CancelTimer(CATCH_UP)]

    def _needed(self, at: Situation, number: int = NEVER) -> int:
        """Return how many other members must hold a state before this node takes it over.

        number: after which round the state is. If that moves the node to no later round, half of
        all members are enough.
        """
        need = quorum(self.context, at.known, at.live)
        return min(need, half(len(at.known))) if number < at.number else need

    def _reached(self, at: Situation) -> int:
        """Return the latest round to which at least _needed() members contributed, 0 if none."""
        return reached(map(at.round_of, at.known), self._needed(at))

    def _beyond(self, at: Situation, number: int) -> bool:
        """Tell whether a state is more than a round beyond what most members contributed to.

        Where members contribute to one of `span` rounds, it may be so many rounds beyond.
        """
        return number >= at.number and number > self._reached(at) + at.span

    # Asking ---------------------------------------------------------------------------------------

    def begin(self, at: Situation, holders: Set[str]) -> list[Effect]:
        """Begin a round: ask for a state, if the node is behind or drifted in the last round.

        holders: the peers that held what most held in the last round, if this node did not.
        """
        self._end_mending()
        return self.look_ahead(at, at.number) or self._mend(at, holders & at.live)

    def look_ahead(self, at: Situation, beyond: int) -> list[Effect]:
        """Ask for a state if most members are beyond a round."""
        furthest = self._reached(at)
        if furthest <= beyond or self._transfer.resting:
            return []
        return self._ask(at, (peer for peer in at.live if at.round_of(peer) >= furthest))

    def _mend(self, at: Situation, givers: Iterable[str]) -> list[Effect]:
        """Ask one of `givers` for the state that most nodes began from, to end a drift.

        A failed attempt to catch up does not delay this one: a node that drifted stays apart in all
        further rounds, and an attempt costs one state a round.
        """
        return self._ask(at, givers, mending=True)

    def _end_mending(self) -> None:
        """End an attempt to end a drift that an earlier round began: its answer is too late."""
        transfer = self._transfer
        if transfer.mending and not transfer.destination:
            transfer.broken |= {transfer.asked} - {""}
            transfer.end()

    def _ask(self, at: Situation, givers: Iterable[str], mending: bool = False) -> list[Effect]:
        """Ask one of these peers, drawn at random, for its state; if it leaves, ask the next."""
        transfer, candidates = self._transfer, sorted(givers)
        if not candidates or transfer.busy:
            return []
        transfer.mending = mending
        transfer.begin(self._drawn(at, candidates, "givers"))
        limit = SetTimer(CATCH_UP, self.context.rounds.deadline_s)
        return [*([] if transfer.resting else [limit]), *self._ask_next(at)]

    def _drawn(self, at: Situation, peers: Iterable[str], what: str) -> list[str]:
        shuffled = sorted(peers)
        self.context.random(at.number, f"{what} {self._transfer.attempts}").shuffle(shuffled)
        return shuffled

    def _ask_next(self, at: Situation) -> list[Effect]:
        peer = self._transfer.next_giver()
        if not peer:
            if self._transfer.mending:
                return []  # no holder has adopted that round yet: ask again in the next round
            self._transfer.resting = True  # until the deadline of this attempt
            text = "no peer gives its state: this node goes on from its own"
            return [Record("round.doubted", text, "warning")]
        return [Send(peer, self._message(at, WANT))]

    # Questions and answers ------------------------------------------------------------------------

    def question(self, at: Situation, message: Message) -> list[Effect]:
        """Take what is asked and said about shared states."""
        sender, transfer = message.sender, self._transfer
        if message.phase == WANT and transfer.may_give(sender):
            state = self._message(at, STATE, at.held.packed(), {ADOPTED: str(at.adopted)})
            return [Send(sender, replace(state, dtype="float32"))]
        if message.phase == WITNESS:
            facts = transfer.vouch(message, at.adopted)
            return [] if facts is None else [Send(sender, self._message(at, VOUCH, facts=facts))]
        if message.phase == STATE and sender == transfer.asked:
            return self._offered(at, message)
        if message.phase == VOUCH and transfer.vouched(message):
            return self._weigh(at)
        return []

    def _offered(self, at: Situation, message: Message) -> list[Effect]:
        number = Transfer.number(message)
        if number < at.number - self.drifts or self._beyond(at, number):
            return self._ask_next(at)
        witnesses = sorted(at.live - {message.sender})
        self._transfer.offered(message, witnesses)
        question = self._message(at, WITNESS, facts={OF: message.facts[ADOPTED]})
        return [*(Send(witness, question) for witness in witnesses), *self._weigh(at)]

    def _weigh(self, at: Situation) -> list[Effect]:
        """Decide about the state on offer once enough witnesses were heard, or all."""
        transfer, offer = self._transfer, self._transfer.offer
        if offer is None:
            return []
        need = self._needed(at, Transfer.number(offer))
        if transfer.believed(need):
            return [self._take(at, offer, "round.taken")]
        holders = set(transfer.holders(need)) & at.live - transfer.broken - {offer.sender}
        if holders:  # most members hold another: one of them is asked
            transfer.broken.add(offer.sender)
            transfer.begin(self._drawn(at, holders, "holders"))
            return [self._doubted(at, offer), *self._ask_next(at)]
        return self._unbacked(at, offer) if transfer.heard_all else []

    def _unbacked(self, at: Situation, offer: Message) -> list[Effect]:
        """Decide what to do if too few members hold the state on offer."""
        transfer, number = self._transfer, Transfer.number(offer)
        if number == at.number - 1 and self.trusting and transfer.agreed_by_trust():
            return [self._take(at, offer, "round.mended")]
        known = transfer.held_by().total()
        furthest = min(self._reached(at) - 1, self._last(at.number))
        transfer.end()
        transfer.resting = transfer.resting or not transfer.mending
        if known >= self._needed(at) and at.number < furthest != self.context.rounds.max:
            transfer.destination = Destination(furthest)
        return [self._doubted(at, offer)]

    def _take(self, at: Situation, offer: Message, kind: str) -> Record:
        """Decide to go on from the state on offer; return the record of it."""
        peer, number = offer.sender, Transfer.number(offer)
        self._transfer.end()
        self._transfer.destination = Destination(number, offer.tensors, peer)
        behind = number + 1 - at.number
        late = f"{behind} round{'s' * (behind != 1)} behind the others"
        why = f"this node was {late}" if behind else "this node's state differed from that of most"
        facts: dict[str, Json] = {"peer": peer, "round": number, "digest": offer.tensors.digest}
        text = f"{why}: it went on from the state of {peer}"
        return Record(kind, text, "warning", facts)

    def _doubted(self, at: Situation, offer: Message) -> Record:
        text = (
            f"the state of {offer.sender} after round {Transfer.number(offer)} is not taken: "
            f"fewer than {self._needed(at, Transfer.number(offer))} others are known to hold it; "
            "this node goes on from its own"
        )
        return Record("round.doubted", text, "warning")

    # Ends of attempts -----------------------------------------------------------------------------

    def time_is_up(self, at: Situation) -> list[Effect]:
        """End the attempt whose deadline has passed; the next one may begin."""
        transfer, effects = self._transfer, list[Effect]()
        if transfer.asked and not transfer.mending:  # it said that it was ahead
            peer = transfer.asked
            transfer.broken.add(peer)
            self.stragglers.missed([peer], at.number)
            text = f"{peer} gave no state within the deadline: this node goes on from its own"
            effects = [Record("round.withheld", text, "warning")]
        elif transfer.offer is not None:  # some witnesses said nothing
            effects = self._unbacked(at, transfer.offer)
        transfer.resting = False
        if transfer.asked:
            transfer.end()
        return effects

    def gone(self, at: Situation, peer: str) -> list[Effect]:
        """Note that a peer is not live any more. If it was asked for its state, ask the next."""
        transfer = self._transfer
        self._unheard = {key: message for key, message in self._unheard.items() if key[0] != peer}
        transfer.lost(peer)
        return self._ask_next(at) if transfer.asked == peer else self._weigh(at)

    def undelivered(self, at: Situation, peer: str, message: Message, again: bool) -> list[Effect]:
        """Send a question or an answer once more if it did not get through; or ask others."""
        if message.phase == WANT:
            return self._ask_next(at) if peer == self._transfer.asked else []
        if again:
            self._unheard[peer, message.phase] = message
            return [SetTimer(RESEND, RESEND_S)]
        if message.phase == WITNESS:
            self._transfer.lost(peer)
            return self._weigh(at)
        return []

    def resend(self) -> list[Effect]:
        """Send again what did not get through."""
        unheard, self._unheard = sorted(self._unheard.items(), key=lambda pair: pair[0]), {}
        return [Send(peer, message) for (peer, _), message in unheard]

    def answer_owed(self, at: Situation) -> list[Effect]:
        """Answer the witnesses' questions about the round that was just adopted."""
        self._unheard = {key: message for key, message in self._unheard.items() if key[1] != STATE}
        owed = self._transfer.owed(at.adopted)
        return [Send(peer, self._message(at, VOUCH, facts=facts)) for peer, facts in owed]

    def _message(
        self,
        at: Situation,
        phase: str,
        tensors: Tensors = EMPTY,
        facts: Mapping[str, str] | None = None,
    ) -> Message:
        return self.context.message(at.number, phase, tensors, facts)
