"""The journal by value: which rows stay, which come back, and what is told of a damaged row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.storage.disk import Disk
from fednode.storage.journal import FORMAT, SNAPSHOTS_KEPT, Journal, RoundRow, SnapshotRow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    made = Journal.open(path, Disk())
    yield made
    made.close()


def rows(number: int, digest: str = "") -> tuple[SnapshotRow, RoundRow]:
    digest = digest or f"{number:064x}"
    figures = RoundRow(number, {"loss": 1.0 / number}, {"messages_out": number}, digest)
    return SnapshotRow(number, digest, {"best_round": number}), figures


def test_a_round_comes_back_as_it_was_written(journal: Journal) -> None:
    snapshot, figures = rows(1)
    journal.add(snapshot, figures)
    assert journal.snapshots() == [snapshot]
    assert journal.history(0, 10) == [figures]
    assert journal.digests() == [snapshot.digest]


def test_the_newest_snapshots_stay_and_the_figures_of_all_rounds(journal: Journal) -> None:
    for number in range(1, SNAPSHOTS_KEPT + 3):
        journal.add(*rows(number))
    newest = SNAPSHOTS_KEPT + 2
    assert [row.round for row in journal.snapshots()] == [newest, newest - 1, newest - 2]
    assert [row.round for row in journal.history(0, 99)] == list(range(1, newest + 1))
    assert [row.round for row in journal.history(2, 2)] == [2, 3]


def test_a_round_that_is_stored_again_takes_the_later_ones_with_it(journal: Journal) -> None:
    """A node that went back, as an older backup does, has no later rounds."""
    for number in (1, 2, 3):
        journal.add(*rows(number))
    again = rows(2, "f" * 64)
    journal.add(*again)
    assert [(row.round, row.digest) for row in journal.snapshots()] == [
        (2, "f" * 64),
        (1, f"{1:064x}"),
    ]
    assert journal.history(0, 99) == [rows(1)[1], again[1]]


def test_settings_are_written_once_and_come_back(journal: Journal) -> None:
    assert journal.settings() == {}
    journal.set_settings({"policy.name": "local", "mesh": "m"})
    assert journal.settings() == {"mesh": "m", "policy.name": "local"}
    with pytest.raises(sqlite3.IntegrityError):
        journal.set_settings({"seed": "1", "mesh": "other"})
    assert "seed" not in journal.settings()  # the whole transaction is undone


def test_an_edited_row_is_not_sound_and_says_nothing(journal: Journal, path: Path) -> None:
    for number in (1, 2):
        journal.add(*rows(number))
    with sqlite3.connect(path) as other:
        other.execute("update snapshots set round = 7 where round = 2")
    other.close()
    assert journal.snapshots() == [
        SnapshotRow(7, f"{2:064x}", {}, sound=False),
        rows(1)[0],
    ]


def test_a_reader_sees_what_a_running_node_wrote_and_writes_nothing(
    journal: Journal, path: Path
) -> None:
    journal.add(*rows(1))
    reader = Journal.look(path)
    assert reader.history(0, 9) == [rows(1)[1]]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.add(*rows(2))
    reader.close()


def test_the_rows_of_another_journal_fill_a_new_one(journal: Journal) -> None:
    written = [rows(number) for number in (3, 4)]
    journal.fill({"mesh": "m"}, [one for one, _ in written], [one for _, one in written])
    assert journal.settings() == {"mesh": "m"}
    assert journal.snapshots() == [written[1][0], written[0][0]]
    assert journal.history(0, 9) == [written[0][1], written[1][1]]


@pytest.mark.parametrize(("found", "age"), [(FORMAT - 1, "an older"), (FORMAT + 1, "a newer")])
def test_another_format_is_refused_with_both(path: Path, found: int, age: str) -> None:
    Journal.open(path, Disk()).close()
    with sqlite3.connect(path) as other:
        other.execute(f"pragma user_version={found}")
    other.close()
    with pytest.raises(StateError, match=rf"{age} fednode \(format {found}; .* reads {FORMAT}\)"):
        Journal.open(path, Disk())


def test_other_settings_take_the_place_of_all_that_was_held(journal: Journal) -> None:
    journal.set_settings({"policy.name": "local", "mesh": "m"})
    journal.add(*rows(1))
    journal.begin_anew({"policy.name": "gda", "seed": "1"})
    assert journal.settings() == {"policy.name": "gda", "seed": "1"}
    assert (journal.snapshots(), journal.history(0, 9)) == ([], [])
