"""Settings of what a node shows refuse what makes no sense; secrets are never shown."""

from __future__ import annotations

import pytest

from fednode.settings.output import PageSettings


def test_a_short_token_is_a_fault_that_does_not_repeat_it() -> None:
    with pytest.raises(ValueError, match="too short; give at least 16 characters") as fault:
        PageSettings(token="hunter2")
    assert "hunter2" not in str(fault.value)
