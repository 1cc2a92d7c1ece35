"""Names and places of cells; their scores as CSV: written, read back, and what is none named."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from fednode.errors import ConfigError
from fednode.lab.experiment.cells import Cell, Done, read_scores, score_lines
from fednode.lab.experiment.settings import MethodSettings

METHOD = MethodSettings(label="ZeroDFL, 2 rows", policy={"name": "zerodfl"})


def test_a_cell_is_named_by_its_method_seed_domain_and_key() -> None:
    cell = Cell(METHOD, 3, "photo", "0123456789ab")
    assert cell.file == "zerodfl--2-rows_seed-3_photo_0123456789ab.json"
    assert cell.title == "ZeroDFL, 2 rows, seed 3, photo"
    whole = Cell(METHOD, 3, "", "0123456789ab")
    assert whole.file == "zerodfl--2-rows_seed-3_0123456789ab.json"
    assert whole.title == "ZeroDFL, 2 rows, seed 3"
    assert whole.path(Path("out")) == Path("out/cells") / whole.file


HEAD = "method,seed,left out,test,node,accuracy,cell\n"


def done(key: str, **outcome: Any) -> Done:
    return Done(Cell(MethodSettings(label="PromptFL"), 1, "photo", key), outcome)


def test_what_is_written_comes_back_by_the_cell_s_key(tmp_path: Path) -> None:
    given = {"own": {"b": 0.5, "a": 0.25}, "new": {"a": 1 / 3}}
    rows = score_lines([done("k1", scores=given), done("k2", scores={"own": {"a": 1.0}})])
    assert rows[1] == ["PromptFL", 1, "photo", "own", "a", "0.250000", "k1"]
    path = tmp_path / "scores.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    found = read_scores(path)
    assert list(found) == ["k1", "k2"]
    assert found["k1"]["scores"] == {"own": {"a": 0.25, "b": 0.5}, "new": {"a": 0.333333}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has the columns none; --scores takes a scores.csv"),
        ("method,seed\n", "has the columns method, seed; --scores takes"),
        (HEAD + "P,1,,own,a,1.5,k\n", r"line 2: accuracy is '1.5'; it must be a number from 0"),
        (HEAD + "P,1,,own,a,0.5,k\nP,1,,own,b,x,k\n", "line 3: accuracy is 'x'"),
        (HEAD + "P,1,,own,a,nan,k\n", "line 2: accuracy is 'nan'"),
    ],
)
def test_what_is_no_scores_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_scores(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_scores(tmp_path / "none.csv")
