"""Name every fault that a user can meet.

A fault is one sentence: what was wrong, the value, the limit, what to do. The command line prints
it and exits with its `exit_code`; nothing else reaches the user. The codes are stable: 0 well, 1 no
(the operator's answer to a question, or a node that ended its rounds and merged nothing of its
peers), 2 settings or words on the command line, 3 images or model, 4 this machine (state directory,
key, address), 5 nobody answers, 6 refused, 70 a defect of fednode, 130 Ctrl-C.
"""

from __future__ import annotations

from typing import Final

FAULT_CODES: Final = frozenset({2, 3, 4, 6})
"""Exit codes of what starting again cannot mend."""


class FednodeError(Exception):
    """A fault with a sentence meant for the user."""

    exit_code = 2


class ConfigError(FednodeError):
    """A setting is missing, unknown, of the wrong type or at odds with another."""


class DataError(FednodeError):
    """The images or their folders cannot be used as they are."""

    exit_code = 3


class ModelError(FednodeError):
    """A backbone or its weights cannot be loaded, or a prompt does not fit it."""

    exit_code = 3


class IdentityError(FednodeError):
    """A key or certificate is damaged, expired, revoked or another's."""

    exit_code = 4


class StateError(FednodeError):
    """The state directory cannot be used: in use, damaged, full, or of another version."""

    exit_code = 4


class AddressError(FednodeError):
    """An address cannot be listened on or understood."""

    exit_code = 4


class Unreachable(FednodeError):
    """Nobody answered at an address within the time given; asking again may help."""

    exit_code = 5


class KeyRefused(Unreachable):
    """A node answers, and does not admit the key that was shown to it."""

    exit_code = 6


class Refused(FednodeError):
    """A peer answered and refused, with a sentence of its own; asking again does not help."""

    exit_code = 6


class NeverMerged(FednodeError):
    """A node ended its rounds, merged nothing of its peers, and was meant to."""

    exit_code = 1


class Declined(FednodeError):
    """The operator answered no to the question of a command, so nothing was done."""

    exit_code = 1


class FrameError(FednodeError):
    """Bytes from the network are not a valid fednode message."""

    exit_code = 6


class VersionError(FrameError):
    """A message of another version of fednode, which no peer is to blame for."""
