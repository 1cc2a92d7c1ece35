"""What a command shows on standard error while it works."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from fednode.terminal.progress import Shown

GUARD_S = 180.0


class Screen(io.StringIO):
    """Text, and an event that is set once some of it was written."""

    def __init__(self) -> None:
        super().__init__()
        self.wrote = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        self.wrote.set()
        return count


def test_a_terminal_gets_a_bar_that_leaves_no_trace() -> None:
    screen = Screen()
    console = Console(file=screen, force_terminal=True, width=100)
    with Shown("Nothing.", console, first_s=0.0) as told:
        told("encoding images", 1_200, 2_870)
        assert screen.wrote.wait(GUARD_S)
        with told.hidden():
            seen = screen.getvalue()
            assert "encoding images 1,200 of 2,870" in seen
            assert seen.endswith("\x1b[1A\x1b[2K"), "the bar's line is taken away for the results"
            screen.wrote.clear()
        assert screen.wrote.wait(GUARD_S), "the bar comes back behind the results"
    assert screen.getvalue().endswith("\x1b[1A\x1b[2K")


def test_elsewhere_standard_error_gets_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    told = Shown("Nothing.", Console(file=io.StringIO()))
    told._show()
    told("loading the model", 0, 0)
    told._show()
    told("examining images", 8, 40)
    told._show()
    told("examining images", 40, 40)
    told._show()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "fednode: loading the model (0 s)",
        "fednode: examining images 8 of 40 (0 s)",
    ]


def test_quick_work_shows_nothing() -> None:
    screen = Screen()
    with Shown("Nothing.", Console(file=screen, force_terminal=True)) as told:
        told("encoding images", 1, 2)
    assert screen.getvalue() == ""


def test_an_interruption_says_what_was_kept() -> None:
    with pytest.raises(KeyboardInterrupt, match="Four images are done"), Shown("None") as told:
        _interrupt(told)
    with pytest.raises(ValueError, match="of itself"), Shown("Nothing."):
        raise ValueError("of itself")


def _interrupt(told: Shown) -> None:
    told.kept = "Four images are done"
    raise KeyboardInterrupt
