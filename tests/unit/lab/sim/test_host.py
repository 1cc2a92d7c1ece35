"""A simulated node's machine: how verdicts travel."""

from __future__ import annotations

import pytest

from fednode.core.events import AckCode
from fednode.lab.sim.host import travelled


@pytest.mark.parametrize("code", ["ok", "stale", "refused", "invalid", "busy"])
def test_a_verdict_is_read_as_it_was_meant(code: AckCode) -> None:
    ack = travelled(code, "because")
    assert (ack.code, ack.detail) == (code, "because")


def test_a_detail_travels_as_one_printable_line() -> None:
    assert travelled("refused", "x\x1b[2J\ny").detail.isprintable()
