"""The log: lines for people and for programs, and a file of bounded size."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from fednode.core.events import Record
from fednode.core.types import Json
from fednode.observe import logs
from fednode.observe.events import Events
from fednode.settings.output import LogSettings

OURS = logging.getLogger("fednode")
PEOPLE = LogSettings(format="text")


def end() -> None:
    """Close the log."""
    for handler in OURS.handlers[:]:
        OURS.removeHandler(handler)
        handler.close()


def test_lines_for_programs_say_what_they_are_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.begin(LogSettings(format="json"), "clinic", "a", tmp_path)
    events = Events()
    about: dict[str, Json] = {"round": 3, "peer": "b", "level": 2}
    events.record(Record("peer.dead", 'b is "dead"\nand gone', "warning", about))
    events.record(Record("message.sent", "too fine", "debug"))
    OURS.info("page: %s", "here")
    shown = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [json.loads(line) for line in (tmp_path / logs.FILE).read_text().splitlines()] == shown
    first, second = shown
    assert (first["mesh"], first["node"], first["event"]) == ("clinic", "a", "peer.dead")
    assert (first["text"], first["round"], first["peer"]) == ('b is "dead" and gone', 3, "b")
    assert (first["level"], first["about_level"]) == ("warning", 2)
    assert (second["event"], second["text"]) == ("log", "page: here")


def test_standard_error_is_bounded_and_says_what_was_left_out(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(logs._Shown.__init__, "__defaults__", (lambda: now[0],))
    logs.begin(PEOPLE, "clinic", "a", tmp_path)
    for number in range(logs.LINES_BURST + 7):
        OURS.info("line %d", number)
    now[0] = 1.0
    for _ in range(20):
        OURS.info("later")
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    wanted = [f"line {at}" for at in range(logs.LINES_BURST)]
    assert lines == [*wanted, "later (7 lines left out before)", *["later"] * 9]
    assert len((tmp_path / logs.FILE).read_text().splitlines()) == logs.LINES_BURST + 27
    end()
    logs.begin(LogSettings(format="text", level="debug"), "clinic", "a", tmp_path)
    for number in range(logs.LINES_BURST + 7):
        OURS.debug("line %d", number)
    assert len(capsys.readouterr().err.splitlines()) == logs.LINES_BURST + 7, "all are asked for"


def test_lines_for_people_and_a_file_that_makes_room(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 2000)
    logs.begin(PEOPLE, "clinic", "a", tmp_path)
    for number in range(60):
        OURS.info("line %d", number)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [f"line {at}" for at in range(60)]
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [logs.FILE, f"{logs.FILE}.1"]
    assert all((tmp_path / name).stat().st_size <= 2000 for name in kept)


def test_a_log_that_cannot_be_written_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.begin(PEOPLE, "clinic", "a", tmp_path / "nowhere")
    OURS.info("still here")
    assert capsys.readouterr().err.endswith("still here\n")


def test_the_file_is_for_its_owner_alone_and_no_link_is_followed(tmp_path: Path) -> None:
    logs.begin(PEOPLE, "clinic", "a", tmp_path)
    OURS.info("line")
    assert (tmp_path / logs.FILE).stat().st_mode & 0o777 == 0o600
    end()
    other, state = tmp_path / "other", tmp_path / "state"
    state.mkdir()
    other.write_text("precious")
    (state / logs.FILE).symlink_to(other)
    logs.begin(PEOPLE, "clinic", "a", state)
    OURS.info("line")
    assert other.read_text() == "precious"
