"""The history of rounds: what is shown, what a crash or damage leaves, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.storage.disk import Disk
from fednode.storage.history import History, RoundRow
from fednode.storage.store import Store
from tests.unit.storage.stored import filled, snapshot


def row(number: int, loss: float = 0.5) -> RoundRow:
    return RoundRow(number, {"loss": loss / number}, {"messages_out": number}, f"{number:064x}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of four adopted rounds."""
    history = History(tmp_path / "history.jsonl", Disk(), -1)
    for number in range(1, 5):
        history.adopt(number, history.write(row(number)))
    return tmp_path / "history.jsonl"


def test_a_row_is_shown_when_its_round_is_adopted(path: Path) -> None:
    history = History(path, Disk(), 4)
    history.write(row(5, 0.7))
    assert history.rows(4, 9) == [row(4)]
    assert History(path, Disk(), 4).rows(4, 9) == [row(4)], "a crash before the checkpoint"
    history.adopt(5, history.write(row(5)))
    assert history.rows(4, 9) == [row(4), row(5)]
    assert History(path, Disk(), 5).rows(4, 9) == [row(4), row(5)]


def test_a_round_that_is_run_again_takes_the_later_ones_with_it(path: Path) -> None:
    history = History(path, Disk(), 4)
    history.adopt(3, history.write(row(3, 0.7)))
    assert history.rows(0, 9) == [row(1), row(2), row(3, 0.7)]
    assert History(path, Disk(), 3).rows(0, 9) == [row(1), row(2), row(3, 0.7)]


@pytest.mark.parametrize("cut", [1, 20, 10_000])
@pytest.mark.parametrize("zeros", [0, 30])
def test_a_torn_last_row_is_dropped(path: Path, cut: int, zeros: int) -> None:
    content = path.read_bytes()
    start = content.rindex(b"\n", 0, -1) + 1
    path.write_bytes(content[: max(start + 1, len(content) - cut)] + bytes(zeros))
    before = History(path, Disk(), 3)
    assert before.rows(0, 9) == [row(1), row(2), row(3)]
    assert not before.torn, "round 4 was not adopted, so nothing is lost"
    history = History(path, Disk(), 4)
    assert history.torn
    assert history.rows(0, 9) == [row(1), row(2), row(3)]
    history.adopt(5, history.write(row(5)))
    again = History(path, Disk(), 5)
    assert again.rows(0, 9) == [row(1), row(2), row(3), row(5)]
    assert not again.torn


def test_a_damaged_row_is_left_out(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"round": 2', b'"bound": 2'))
    assert History(path, Disk(), 4).rows(0, 9) == [row(1), row(3), row(4)]
    path.write_bytes(path.read_bytes() + b"[" * 100_000 + b"\n")
    assert History(path, Disk(), 4).rows(0, 9) == [row(1), row(3), row(4)]


def test_the_store_says_that_a_row_is_lost(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    path = tmp_path / "history.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    store = Store(tmp_path)
    assert store.latest() == snapshot(3)
    assert store.warnings == [f"the last line of {path} is torn; the figures of its round are lost"]
    store.close()
