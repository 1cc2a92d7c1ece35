"""Several workers on one folder, shares of cells, executors that lose workers, and refusals."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from fednode.cli import main
from fednode.errors import ConfigError, DataError
from fednode.lab.experiment import claims, run
from fednode.lab.experiment.cells import Cell, Outcome
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.run import cells
from fednode.lab.experiment.workers import needs, share
from fednode.learn import cache
from tests.unit.lab.experiment.test_experiment import start, write

METHODS = [{"label": "zero-shot", "policy": "zero-shot"}, "local"]
OUTCOME = {"scores": {"photo": {"n": 0.5}}, "seconds": 1.0}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """Return an experiment of eight cells, in two folders."""
    changed: dict[str, Any] = {"methods": METHODS, "vary": {"data.shots": [1, 2]}, "rounds": 1}
    return write(tmp_path_factory.mktemp("file") / "trial.yaml", folder, **changed)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, file: Path, model: str) -> Path:
    """Return the folder that one command has filled by itself."""
    out = tmp_path_factory.mktemp("alone")
    with pytest.raises(SystemExit) as ended:
        main(["experiment", str(file), "--set", model, "--out", str(out), "--workers", "1"])
    assert not ended.value.code
    return out


def done_in(out: Path) -> set[str]:
    return {path.name for path in out.rglob("cells/*")}


def test_workers_shares_and_one_command_write_the_same_tables(
    tmp_path: Path, file: Path, alone: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    every, out = done_in(alone), tmp_path / "out"
    assert len(every) == 8
    parts = []
    for at in (1, 2):
        before = done_in(out)
        words = (file, "--set", model, "--out", out, "--shard", f"{at}/3")
        code, shown, _ = start(capsys, *words)
        assert code == 0
        assert f"Share {at}/3 of the runs has ended." in shown
        parts.append(done_in(out) - before)
    assert [len(one) for one in parts] == [3, 3], "cells 1, 4 and 7; cells 2, 5 and 8"
    code, shown, _ = start(capsys, file, "--set", model, "--out", out, "--worker")
    assert code == 0
    assert "All runs have ended. The same command without --worker" in shown
    assert done_in(out) == every
    assert not list(out.rglob("report.md"))
    code, shown, _ = start(capsys, file, "--set", model, "--out", out)
    assert code == 0
    assert "8 of 8 runs were there from before" in shown
    for path in alone.rglob("*.csv"):
        assert (out / path.relative_to(alone)).read_bytes() == path.read_bytes()


def test_a_share_of_slurm_s_array(
    tmp_path: Path,
    file: Path,
    model: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"ID": "3", "COUNT": "4", "MIN": "1"}.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", value)
    words = (file, "--set", model, "--out", tmp_path / "out", "--shard", "slurm")
    assert start(capsys, *words)[0] == 0
    assert len(done_in(tmp_path / "out")) == 2


@pytest.mark.parametrize("ended", ["finished", "dead"])
def test_a_cell_of_another_worker_is_waited_for_or_taken_over(
    tmp_path: Path,
    file: Path,
    alone: Path,
    model: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ended: str,
) -> None:
    out = tmp_path / "out"
    shutil.copytree(alone, out)
    (finished,) = (out / "data.shots-2/cells").glob("local_seed-2*")
    kept = tmp_path / "kept"
    finished.rename(kept)
    claim = finished.with_name(f"{finished.name}.claim-1")
    claim.write_text("far:17")

    def later(_: float) -> None:
        if ended == "finished":
            shutil.copy(kept, finished)
            claim.unlink()
        else:
            os.utime(claim, (1.0, 1.0))

    monkeypatch.setattr("fednode.lab.experiment.run.time.sleep", later)
    code, shown, _ = start(capsys, file, "--set", model, "--out", out)
    assert code == 0
    assert "Waiting for other workers: far:17 runs local, seed 2." in shown
    assert ("by another worker" in shown) == (ended == "finished")
    assert done_in(out) == done_in(alone)
    scores = [one / "data.shots-2/scores.csv" for one in (alone, out)]
    assert scores[0].read_bytes() == scores[1].read_bytes()


@pytest.mark.parametrize(("ends", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_worker_that_is_ended_gives_its_cell_back(
    tmp_path: Path,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
    code: int,
) -> None:
    held: list[Path] = []

    def work(*_: object) -> None:
        held.extend((tmp_path / "out").rglob("*.claim-1"))
        os.kill(os.getpid(), getattr(signal, ends))

    monkeypatch.setattr(run, "_outcome", work)
    # A test suite in the background inherits an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found, shown, err = start(capsys, file, "--out", tmp_path / "out", "--worker")
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == code
    said = shown if ends == "SIGTERM" else err
    assert "topped" in said
    assert re.search(r"0 of \d runs are kept; the same command goes on from there\.", said)
    assert len(held) == 1
    assert done_in(tmp_path / "out") == set()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_worker_tries_a_cell_that_fails_once(
    tmp_path: Path,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def work(_: object, cell: Cell) -> Outcome:
        tried.append(cell)
        raise DataError("no images.")

    monkeypatch.setattr(run, "_outcome", work)
    code, shown, _ = start(capsys, file, "--out", tmp_path / "out", "--worker")
    assert (code, len(tried)) == (2, 8)
    assert "8/8 local, seed 2: failed: no images." in shown
    assert done_in(tmp_path / "out") == set(), "claims are given back"


# Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_shares_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--shard is .*; give I/N with I from 1 to N, 2/4 for"):
        share(text, {})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"ID": "1", "COUNT": "3", "MIN": "1"}, (0, 3)),
        ({"ID": "0", "COUNT": "1"}, (0, 1)),
        ({"ID": "9", "COUNT": "4", "MIN": "3", "STEP": "2"}, (3, 4)),
        ({"ID": "9", "COUNT": "3", "MIN": "1"}, None),
        ({"ID": "4", "COUNT": "4", "MIN": "3", "STEP": "2"}, None),
        ({"ID": "1", "COUNT": ""}, None),
        ({"ID": "x", "COUNT": "3"}, None),
        ({"ID": "1", "COUNT": "3", "STEP": "0"}, None),
    ],
)
def test_shares_of_an_array(given: dict[str, str], found: tuple[int, int] | None) -> None:
    environment = {f"SLURM_ARRAY_TASK_{name}": value for name, value in given.items()}
    if found is not None:
        assert share("slurm", environment) == found
        return
    with pytest.raises(ConfigError, match=r"SLURM_ARRAY_TASK_ID is .* an array without gaps"):
        share("slurm", environment)


def test_a_share_outside_of_an_array() -> None:
    with pytest.raises(ConfigError, match="SLURM_ARRAY_TASK_ID, which is not set: submit the"):
        share("slurm", {})


@pytest.mark.parametrize(("kind", "package"), [("slurm", "submitit"), ("dask", "distributed")])
def test_an_executor_whose_package_is_missing(
    tmp_path: Path,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    package: str,
) -> None:
    monkeypatch.setattr(
        sys, "path", [one for one in sys.path if not (Path(one) / package).is_dir()]
    )
    for name in [one for one in sys.modules if one.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    sys.path_importer_cache.clear()
    code, _, err = start(capsys, file, "--out", tmp_path / "out", "--executor", kind)
    assert code == 2
    assert f"--executor {kind} needs the package {package}, which is not installed" in err
    assert f"pip install 'fednode[{kind}]'" in err
    needs("local")


def test_a_cache_on_a_network_file_system_is_refused(
    tmp_path: Path,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "network_file_system", lambda _: "nfs4")
    words = (file, "--out", tmp_path / "out", "--set", "cache.folder=/home/me/cache")
    code, _, err = start(capsys, *words)
    assert code == 2
    assert "cache.folder is /home/me/cache, on a network file system (nfs4), where" in err
    assert not (tmp_path / "out").exists()


def test_cells_do_not_depend_on_the_cache(
    tmp_path: Path, file: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [one.file for one in cells(load_experiment(file))]
    own = f"cache.folder={tmp_path / 'cache'}"
    assert [one.file for one in cells(load_experiment(file, flags=[own]))] == before
    words = (file, "--set", model, "--set", own, "--out", tmp_path / "out", "--shard", "1/8")
    assert start(capsys, *words)[0] == 0
    assert (tmp_path / "cache/features.db").is_file()
    assert not claims._held
