"""Whether this node itself seems to be at fault: Lifeguard's local health (Dadgar et al. 2018).

A node of an overloaded machine, or behind a bad link, gets answers too late, and would take live
members for dead. It notices: its pings fail, and the members that it asks for help do not answer
either; or others get through to a member that it cannot reach; or others suspect it. It then probes
less often and waits longer, which also takes load off the machine.
"""

from __future__ import annotations

from typing import Final

from fednode.core.events import Delivered, Undelivered
from fednode.core.members.phases import Phase

FACTOR_MAX: Final = 8


class Health:
    """Multiplier of this node's probe interval and probe timeout, from 1 (well) to FACTOR_MAX."""

    def __init__(self) -> None:
        """Begin well."""
        self.factor = 1

    def worse(self) -> None:
        """Note a sign that this node is at fault."""
        self.factor = min(FACTOR_MAX, self.factor + 1)

    def sent(self, event: Delivered | Undelivered) -> None:
        """Note how a send ended: a ping that was answered, or a helper that did not answer."""
        if isinstance(event, Undelivered) and not event.sent:
            return
        silent = isinstance(event, Undelivered) and event.code == "unreachable"
        phase = event.message.phase
        if phase == Phase.PING and not silent:
            self.factor = max(1, self.factor - 1)
        elif phase == Phase.INDIRECT and silent:
            self.worse()

    @property
    def patience(self) -> float:
        """Return the multiplier of the time in which a suspect may contradict, from 1 to 2."""
        return 1 + (self.factor - 1) / (FACTOR_MAX - 1)
