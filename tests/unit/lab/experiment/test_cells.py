"""Names of cells, and what is no file of scores named."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.lab.experiment.cells import Cell, read_scores
from fednode.lab.experiment.settings import MethodSettings

METHOD = MethodSettings(label="ZeroDFL, 2 rows", policy={"name": "zerodfl"})


def test_a_cell_is_named_by_its_method_seed_domain_and_key() -> None:
    for target, part in (("photo", "photo_"), ("", "")):
        cell = Cell(METHOD, 3, target, "0123456789ab")
        assert cell.file == f"zerodfl--2-rows_seed-3_{part}0123456789ab.json"
        assert cell.title == "ZeroDFL, 2 rows, seed 3" + (", photo" if target else "")


HEAD = "method,seed,left out,test,node,accuracy,cell\n"


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
