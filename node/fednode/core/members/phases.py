"""The phases of the messages by which nodes keep track of each other (swim.py)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """The kernel's kinds of messages; every other phase belongs to the policy."""

    HELLO = "hello"
    """The sender's settings, and its own entry in the list of members."""
    PING = "ping"
    INDIRECT = "indirect"
    """Asks the receiver to ping a third node for the sender."""
    MEMBERS = "members"
    """Digests or entries of the sender's list."""
    BYE = "bye"
    """Says goodbye."""


PHASES: Final = frozenset(Phase)
NOTED: Final = frozenset({Phase.HELLO, Phase.PING, Phase.MEMBERS})
"""The acknowledgement of such a message says whether the receiver reaches the sender."""
