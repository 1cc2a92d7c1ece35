"""Scores as CSV: what is written is read back, and what is no scores.csv is named."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fednode.errors import ConfigError
from fednode.lab.experiment import scores
from fednode.lab.experiment.cells import Done

HEAD = "method,seed,left out,test,node,accuracy,cell\n"


def done(key: str, **outcome: Any) -> Done:
    """Return a finished cell, as far as its scores go."""
    method = SimpleNamespace(label="PromptFL")
    cell = SimpleNamespace(method=method, seed=1, target="photo", key=key)
    return cast("Done", SimpleNamespace(cell=cell, outcome=outcome))


def test_what_is_written_comes_back_by_the_cell_s_key(tmp_path: Path) -> None:
    given = {"own": {"b": 0.5, "a": 0.25}, "new": {"a": 1 / 3}}
    rows = scores.lines([done("k1", scores=given), done("k2", scores={"own": {"a": 1.0}})])
    assert rows[1] == ["PromptFL", 1, "photo", "own", "a", "0.250000", "k1"]
    path = tmp_path / "scores.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    found = scores.read(path)
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
        scores.read(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        scores.read(tmp_path / "none.csv")
