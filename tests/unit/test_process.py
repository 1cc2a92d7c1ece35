"""A test may start a whole node in the process of the suite: the next test finds all as before."""

from __future__ import annotations

import logging
import signal
import sys

import pytest


@pytest.mark.parametrize("name", ["", "fednode"])
@pytest.mark.parametrize("turn", ["first", "second"])
def test_a_test_leaves_no_handler_behind(name: str, turn: str) -> None:
    """Each turn finds no handler of the turn before it, and leaves its own."""
    log = logging.getLogger(name)
    ours = [one for one in log.handlers if one.get_name() == "left behind"]
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    assert ours == [], turn
    assert log.level != 7
    assert print not in [signal.getsignal(number) for number in numbers]
    left = logging.StreamHandler(sys.stderr)
    left.set_name("left behind")
    log.addHandler(left)
    log.setLevel(7)
    for number in numbers:
        signal.signal(number, print)
