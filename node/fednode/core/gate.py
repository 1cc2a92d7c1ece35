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
    """Check sender, configuration, phase, shape, finiteness, norm, age and repetition."""

    def __init__(self, context: NodeContext, facts: Mapping[str, str], members: Members) -> None:
        self._context = context
        self._members = members
        self._facts = facts
        self._newest: dict[str, int] = {}
        self._last: dict[tuple[str, str], tuple[int, str]] = {}

    def check(self, message: Message, policy: Policy) -> Verdict:
        """Return the verdict on a message; the gate remembers nothing of a refused message."""
        verdict = self._identity(message)
        if verdict is not TAKEN:
            return verdict
        if message.phase in PHASES:
            self._newest[message.sender] = message.round
            return TAKEN
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
        newest = self._newest.get(message.sender, 0)
        stale = self._stale(message, policy, newest)
        if stale:
            return "stale", "stale", stale
        # In shared rounds a node that was behind may need a message now that it skipped before.
        if not policy.shared_state and message.phase not in policy.repeatable:
            key, value = (message.sender, message.phase), (message.round, message.tensors.digest)
            if self._last.get(key) == value:
                return "duplicate", "duplicate", "taken before"
            self._last[key] = value
        self._newest[message.sender] = max(newest, message.round)
        return TAKEN

    def _stale(self, message: Message, policy: Policy, newest: int) -> str:
        """Return why a message comes too late; "" if it does not.

        If the mesh runs its rounds together, the messages of a round are taken in any order until
        this node has ended that round. Messages of repeatable phases are always taken.
        """
        if not policy.shared_state:
            text = f"round {message.round} is older than round {newest}, which was heard before"
            return text if message.round < newest else ""
        over = policy.round
        if message.phase in policy.repeatable or message.round > over:
            return ""
        name, number = self._context.name, message.round
        return f"{name} has ended round {number} already; the last round that it ended is {over}"
