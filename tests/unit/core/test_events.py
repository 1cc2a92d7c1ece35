"""How the answer to a send becomes an event."""

from __future__ import annotations

import pytest

from fednode.core.events import AckCode, Delivered, Undelivered, acknowledged
from tests.unit.core.scenes import message


def test_ok_delivers_with_the_receiver_s_note() -> None:
    assert acknowledged("b", message(), "ok", "no route") == Delivered("b", message(), "no route")


@pytest.mark.parametrize("code", ["stale", "refused", "invalid", "busy", "silent"])
def test_every_other_code_leaves_the_message_undelivered_with_its_reason(code: AckCode) -> None:
    event = acknowledged("b", message(), code, "because")
    assert event == Undelivered("b", message(), code, "because", sent=True)
