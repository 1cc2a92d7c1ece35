"""A node of mesh-wide rounds that is behind, or drifted: it takes over the state of who is ahead.

Whose word counts is node/core/transfer.py's; here is when to ask, what to answer, and how the round
under way goes on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from node.core.events import CancelTimer, Effect, Record, Send, SetTimer
from node.core.mail import Mail
from node.core.method import Contribution, Held, Method
from node.core.policy import DEADLINE, Context
from node.core.settings import Barrier
from node.core.transfer import ADOPTED, OF, STATE, VOUCH, WANT, WITNESS, Transfer
from node.core.types import EMPTY, Message, PolicyState, Tensors


class Behind(Method):
    """The part of `Staged` (node/core/rounds.py) that catches up; see the file's header."""

    def __init__(self, config: Any, context: Context, state: PolicyState) -> None:
        super().__init__(config, context, Held(state.tensors, state.carry, state.arrays))
        self.current = state.round
        self._round, self._tuned = state.round, state.tuned  # of the last one adopted
        self._mode: Barrier = context.rounds.mode or self.default_mode
        self._phase, self._stage = "idle", 0
        self._metrics: Mapping[str, float] = {}
        self._live: set[str] = set()
        self._met = set(context.peers)
        self._mail = Mail()
        self._own: dict[str, Contribution] = {}  # this round's, by stage
        self._transfer = Transfer(past={state.round: self.held.packed().digest})

    @property
    def _pair(self) -> bool:
        """Whether at most one other was ever met: then its word has to be enough."""
        return len(self._met) < 2

    @abstractmethod
    def _start_stage(self) -> list[Effect]:
        """Begin the stage of the round that is due."""

    @abstractmethod
    def _advance(self) -> list[Effect]:
        """Go on if the stage has what it waits for."""

    @abstractmethod
    def _finish(self) -> list[Effect]:
        """Adopt the draft."""

    def _ahead(self, beyond: int) -> str:
        """Return the live peer that is furthest beyond a round; "" where none is."""
        believed = sorted(self._live - self._transfer.disbelieved)
        return "" if self._mode == "async" else self._mail.furthest(believed, beyond)

    def _ask(self, peer: str) -> list[Effect]:
        self._transfer.ask(peer)
        self._phase = "exchanging"
        deadline = SetTimer(DEADLINE, self.context.rounds.deadline_s)
        return [Send(peer, self.message(WANT)), deadline]

    def _question(self, message: Message) -> list[Effect]:
        """Take what is asked and said about shared states."""
        sender, transfer = message.sender, self._transfer
        if message.phase == WANT and transfer.may_give(sender):
            state = self.message(STATE, self.held.packed(), {ADOPTED: str(self._round)})
            return [Send(sender, replace(state, dtype="float32"))]
        if message.phase == WITNESS:
            facts = transfer.vouch(message, self._round)
            return [Send(sender, self.message(VOUCH, facts=facts))]
        if message.phase == STATE and sender == transfer.asked and self._phase == "exchanging":
            return self._offered(message)
        if message.phase == VOUCH:
            transfer.vouched(message)
            return self._decide()
        return []

    def _offered(self, message: Message) -> list[Effect]:
        if Transfer.number(message) < self.current - self.drifts:
            return self._go_on_without(message.sender)
        there = self._live - {message.sender}
        others = sorted(there, key=lambda one: (-self._mail.round_of(one), one))
        asked = self._transfer.offered(message, others)
        question = self.message(WITNESS, facts={OF: message.facts[ADOPTED]})
        return [*(Send(one, question) for one in asked), *self._decide()]

    def _decide(self) -> list[Effect]:
        """Take over the state on offer, or leave it, once its witnesses are heard."""
        transfer = self._transfer
        offer = transfer.offer
        if offer is None or self._phase != "exchanging":
            return []
        number = Transfer.number(offer)
        doubt = transfer.doubt(self._pair, number == self.current - 1, self.trusting)
        if doubt:
            if self._live - {offer.sender}:
                transfer.disbelieved.add(offer.sender)
            text = f"the state of {offer.sender} after round {number} is not taken: {doubt}"
            return [Record("round.doubted", text, "warning"), *self._go_on_without(offer.sender)]
        behind = number + 1 - self.current
        why = f"{behind} rounds behind" if behind else "drifted apart"
        text = f"{why}: took the state of {offer.sender}"
        taken: list[Effect] = [CancelTimer(DEADLINE), Record("round.taken", text, "warning")]
        self.draft = self.held.taking(offer.tensors)
        transfer.end()
        if not behind:  # the round under way goes on from it
            self.held = self.draft
            return [*taken, *self._start_stage()]
        self._metrics, self.current = {}, number
        return [*taken, *self._finish()]

    def _go_on_without(self, peer: str) -> list[Effect]:
        """Go on when a peer went, or did not give the state that it was asked for."""
        self._transfer.lost(peer)
        if peer != self._transfer.asked or self._phase != "exchanging":
            return [*self._decide(), *self._advance()]
        self._transfer.end()
        self._mail.forget_round(peer)
        if self.stages[self._stage] in self._own:
            timer = SetTimer(DEADLINE, self.context.rounds.deadline_s)
            return [timer, *self._advance()]
        return [CancelTimer(DEADLINE), *self._start_stage()]

    def message(
        self, phase: str, tensors: Tensors = EMPTY, facts: Mapping[str, str] | None = None
    ) -> Message:
        """Return a message of this round."""
        return self.context.message(self.current, phase, tensors, facts)
