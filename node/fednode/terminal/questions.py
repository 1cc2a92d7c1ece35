"""Questions to a person at a terminal."""

from __future__ import annotations

import sys

from fednode.errors import ConfigError


def require_person(matter: str) -> None:
    """Raise ConfigError if nobody can be asked whether to do something, such as "delete"."""
    if not sys.stdin.isatty():
        raise ConfigError(f"Nobody can be asked here whether to {matter}: give --yes.")
