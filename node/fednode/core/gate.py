"""The gate: it judges each message before a policy sees it. A refusal is a code and a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from fednode.core.events import AckCode
from fednode.core.facts import differences
from fednode.core.members.table import SHUT, Members
from fednode.core.policy import NodeContext, Policy
from fednode.core.types import PHASES, Message

Verdict = tuple[AckCode, str, str]  # code, reason (for counting), sentence (for people)
TAKEN: Verdict = ("ok", "", "")


class Gate:
    """Check sender, configuration, phase, shape, finiteness and norm."""

    def __init__(self, context: NodeContext, facts: Mapping[str, str], members: Members) -> None:
        self._context = context
        self._members = members
        self._facts = facts

    def check(self, message: Message, policy: Policy) -> Verdict:
        verdict = self._identity(message)
        if verdict is not TAKEN or message.phase in PHASES:
            return verdict
        return self._content(message, policy)

    def _identity(self, message: Message) -> Verdict:
        context, sender = self._context, message.sender
        if message.mesh != context.mesh:
            text = f"this is mesh {context.mesh!r}, not {message.mesh!r}"
            return "refused", "mesh", text
        if sender not in self._members:
            listed = f"add it to peers.yaml, and restart {context.name!r}"
            remedy = "its next hello makes it known" if context.grows else listed
            text = f"{sender!r} is not among the peers of {context.name!r}; {remedy}"
            return "refused", "sender", text
        held = self._members[sender]
        if held.state in SHUT:
            return "refused", held.state, held.reason
        said, own = (message.policy, message.fingerprint), (context.policy, context.fingerprint)
        return TAKEN if said == own else ("refused", "configuration", self._differs(message))

    def _differs(self, message: Message) -> str:
        own, sender = self._context, message.sender
        both = {own.name: dict(self._facts), sender: dict(message.facts)}
        if message.policy != own.policy:
            both = {own.name: {"policy.name": own.policy}, sender: {"policy.name": message.policy}}
        named = differences(both) if both[sender] else ""  # facts are in hellos alone
        return named or f"the configuration of {sender!r} differs; its next hello says where"

    def _content(self, message: Message, policy: Policy) -> Verdict:
        fault = policy.fault(message)
        if fault:
            return "invalid", "schema", fault
        if not message.tensors.finite():
            return "invalid", "not finite", "a number in the prompts is not finite"
        norm_fault = self._context.norm_fault(message.tensors)
        if norm_fault:
            return "invalid", "norm", f"the prompts' {norm_fault}"
        return TAKEN
