"""What the benchmarks print: JSON with every field, a table in units, and a plot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.lab.bench.output import Column, Panel, draw, show


@dataclass
class Sample:
    name: str
    seconds: float
    count: int
    good: bool | None


ROWS = [Sample("first", 0.012345, 12_345, True), Sample("second", 12_345.6, 7, None)]
COLUMNS = [Column("name", "name"), Column("seconds", "time", "s"), Column("count", "count"),
           Column("good", "good")]  # fmt: skip


def test_json_has_every_field_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show("json", "a title", ROWS, COLUMNS[:1], "a note")
    found = json.loads(capsys.readouterr().out)
    assert found["title"] == "a title"
    assert found["rows"][1] == {"name": "second", "seconds": 12345.6, "count": 7, "good": None}


def test_a_table_rounds_to_significant_digits_and_names_units(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show("table", "a title", ROWS, COLUMNS, "a note")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["a", "title"]
    assert ["name", "s", "count", "good"] in lines
    assert ["first", "0.0123", "12,345", "yes"] in lines
    assert ["second", "12,346", "7", "-"] in lines
    assert lines[-1] == ["a", "note"]


def test_a_plot_is_drawn_and_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    panels = [
        Panel("time", "nodes", {"ours": [(8, 1.0), (16, 2.0)]}),
        Panel("by name", "task", {"ours": [("a", 1.0)], "theirs": [("b", 3.0)]}),
    ]
    draw(panels, "a title", tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    assert "<svg" in text
    with pytest.raises(ConfigError, match=r"--plot .*none/plot.png cannot be written"):
        draw(panels, "a title", tmp_path / "none" / "plot.png")
