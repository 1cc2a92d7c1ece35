"""Settings of what a node shows refuse what makes no sense; secrets are never shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fednode.settings.output import LogSettings, PageSettings


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: LogSettings(file_mb=-1), "log.file_mb is -1; it must be from 0 to 10000"),
        (lambda: PageSettings(token="short"), "give at least 16 characters"),
    ],
)
def test_a_wrong_value_is_a_sentence(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_a_short_token_is_not_repeated_in_its_fault() -> None:
    with pytest.raises(ValueError, match="too short") as fault:
        PageSettings(token="hunter2")
    assert "hunter2" not in str(fault.value)
