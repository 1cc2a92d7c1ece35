"""What the tests of the benches share with those of the commands."""

from __future__ import annotations

from tests.unit.commands.conftest import fednode

__all__ = ["fednode"]
