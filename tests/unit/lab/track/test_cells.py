"""An experiment's finished cells and tables reach a tracker, each once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fednode.errors import ConfigError, Refused
from fednode.lab.track import cells
from fednode.lab.track.cells import steps
from fednode.lab.track.writing import Patient
from tests.unit.lab.track.conftest import FAKE, broken, lines, logged

OUTCOME: dict[str, Any] = {
    "method": "ours",
    "seed": 1,
    "target": "photo",
    "scores": {"photo": {"node-01": 0.5, "node-02": 1.0}},
    "curve": {"1": {"photo": {"node-01": 0.5, "node-02": 0.0}}},
    "loss": [3.0, 2.0],
    "consensus": [0.0, 0.5],
    "bytes": {
        "hello": {"messages": 9, "payload": 9, "serialized": 9, "wire": 9},
        "rows": {"messages": 4, "payload": 40, "serialized": 44, "wire": 50},
        "done": {"messages": 1, "payload": 0, "serialized": 3, "wire": 5},
    },
    "rounds": 2,
    "seconds": 7.0,
}
REPORT = {
    "experiment": {
        "title": "a trial",
        "seeds": [1, 2],
        "data": {"shots": 4},
        "methods": [{"label": "ours", "policy": {"name": "zerodfl", "recipients": 2}}],
    }
}


def experiment(folder: Path, *seeds: int) -> Path:
    """Write an experiment's folder with a cell for each seed."""
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        cell = folder / "cells" / f"ours_seed-{seed}_photo_abc.json"
        cell.write_text(json.dumps({**OUTCOME, "seed": seed}))
    (folder / "report.json").write_text(json.dumps(REPORT))
    (folder / "report.md").write_text(f"# report on {len(seeds)} seeds\n")
    return folder


def test_figures_of_a_cell_by_round() -> None:
    assert steps(OUTCOME) == {
        1: {"accuracy/photo": 0.25, "loss/training": 3.0, "consensus distance": 0.0},
        2: {
            "accuracy/photo": 0.75,
            "loss/training": 2.0,
            "consensus distance": 0.5,
            "traffic/messages": 5.0,
            "traffic/payload": 40.0,
            "traffic/serialized": 47.0,
            "traffic/wire": 55.0,
            "seconds": 7.0,
        },
    }
    zero_shot = {"scores": OUTCOME["scores"], "seconds": 1.0}
    assert steps(zero_shot) == {0: {"accuracy/photo": 0.75, "seconds": 1.0}}


async def test_cells_and_tables_are_runs(tmp_path: Path) -> None:
    folder, told = experiment(tmp_path / "trial", 1), list[str]()
    await cells.track(folder, FAKE, Patient("Fake"), told.append)
    begin, first, second, end = lines(folder / "tracker/ours_seed-1_photo_abc.jsonl")
    assert begin[1:3] == ["ours_seed-1_photo_abc", "trial"]
    assert begin[3]["method.policy.recipients"] == 2
    assert (begin[3]["data.shots"], begin[3]["seed"], begin[3]["left out"]) == (4, 1, "photo")
    assert (first[1], second[1], end) == (1, 2, ["end"])
    tables = lines(folder / "tracker/tables.jsonl")
    assert [one[0] for one in tables] == ["begin", "table", "end"]
    assert tables[1][1:] == ["report.md", "# report on 1 seeds\n"]
    assert told[-1] == "1 of 1 cells were written; the others were there from before."


async def test_paths_of_images_and_weights_stay_here(tmp_path: Path) -> None:
    folder = experiment(tmp_path / "trial", 1)
    tree = {"data": {"path": "/jane-doe", "shots": 4}, "model": {"pretrained": "jane-doe.pt"}}
    (folder / "report.json").write_text(json.dumps({"experiment": tree}))
    (folder / "report.md").write_text(
        "# trial\n\n`fednode experiment trial.yaml --set data.path=/jane-doe`\n\n| 50.0 |\n\n"
        "## Cells that failed\n\n- ours, seed 1: /jane-doe/1.png is damaged: remove it\n"
    )
    await cells.track(folder, FAKE, Patient("Fake"), print)
    told = b"".join(one.read_bytes() for one in (folder / "tracker").rglob("*") if one.is_file())
    assert b"jane-doe" not in told
    begin = lines(folder / "tracker/ours_seed-1_photo_abc.jsonl")[0]
    assert begin[3]["data.shots"] == 4
    table = lines(folder / "tracker/tables.jsonl")[1]
    assert table[1:] == [
        "report.md",
        "# trial\n\n\n| 50.0 |\n\n## Cells that failed\n\n- ours, seed 1\n",
    ]


@pytest.mark.parametrize(("value", "kept"), [("openai", True), ("w.pt", False), ("a/b", False)])
async def test_a_tag_of_weights_is_told(tmp_path: Path, value: str, kept: bool) -> None:
    folder = experiment(tmp_path / "trial", 1)
    tree = {"data": {"path": "builtin"}, "model": {"name": "ViT-B-16", "pretrained": value}}
    (folder / "report.json").write_text(json.dumps({"experiment": tree}))
    await cells.track(folder, FAKE, Patient("Fake"), print)
    begin = lines(folder / "tracker/ours_seed-1_photo_abc.jsonl")[0]
    assert begin[3]["data.path"] == "builtin"
    assert ("model.pretrained" in begin[3]) is kept


async def test_started_again_it_writes_what_is_new(tmp_path: Path) -> None:
    folder, told = experiment(tmp_path / "trial", 1), list[str]()
    await cells.track(folder, FAKE, Patient("Fake"), told.append)
    held = {file: file.read_text() for file in (folder / "tracker").glob("*.jsonl")}
    await cells.track(folder, FAKE, Patient("Fake"), told.append)
    assert {file: file.read_text() for file in held} == held
    assert told[-1].startswith("0 of 1 cells were written")
    experiment(folder, 1, 2)
    await cells.track(folder, FAKE, Patient("Fake"), told.append)
    assert logged(folder / "tracker/ours_seed-1_photo_abc.jsonl") == [1, 2]
    assert logged(folder / "tracker/ours_seed-2_photo_abc.jsonl") == [1, 2]
    assert "# report on 2 seeds\n" in lines(folder / "tracker/tables.jsonl")[-2]


async def test_a_cell_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    folder = experiment(tmp_path / "trial", 1)
    with pytest.raises(Refused, match="no space for step 2"):
        await cells.track(folder, broken("FullDisk"), Patient("Fake"), print)
    await cells.track(folder, FAKE, Patient("Fake"), print)
    assert logged(folder / "tracker/ours_seed-1_photo_abc.jsonl") == [1, 2]


async def test_a_method_that_learns_nothing_has_its_round_0(tmp_path: Path) -> None:
    folder = experiment(tmp_path / "trial")
    kept = ("method", "seed", "target", "scores", "seconds")
    cell = {name: OUTCOME[name] for name in kept}
    (folder / "cells/zero.json").write_text(json.dumps(cell))
    (folder / "cells/torn.json").write_text('{"sco')
    for _ in range(2):
        await cells.track(folder, FAKE, Patient("Fake"), print)
    assert logged(folder / "tracker/zero.jsonl") == [0]


async def test_folders_of_varied_values_are_read_and_others_refused(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    for shots in (1, 2):
        experiment(folder / f"data.shots-{shots}", 1)
    await cells.track(folder, FAKE, Patient("Fake"), print, tmp_path / "out")
    names = {file.stem for file in (tmp_path / "out").glob("*.jsonl")}
    assert names == {
        "tables",
        *(f"data.shots-{shots}-ours_seed-1_photo_abc" for shots in (1, 2)),
    }
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no finished cells: give the output folder"):
        await cells.track(tmp_path / "empty", FAKE, Patient("Fake"), print)
