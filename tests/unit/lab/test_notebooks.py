"""The notebooks of docs/ run from their first cell to their last, and show what they say."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[3]
GUARD_S = 180
WHOLE_S = 3600
"""The same for the whole notebook, which takes ten minutes on two cores that do nothing else."""


def surroundings(home: Path) -> dict[str, str]:
    """Return an environment where `fednode` is this checkout's and HOME is empty."""
    programs = home / "bin"
    programs.mkdir()
    command = f'#!/bin/sh\nexec {sys.executable} -m fednode.cli "$@"\n'
    (programs / "fednode").write_text(command)
    (programs / "fednode").chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    code = os.pathsep.join(str(ROOT / part) for part in ("node", "bootstrap"))
    own = {"HOME": str(home), "PATH": path, "PYTHONPATH": code}
    return {**os.environ, **own, "FEDNODE_PAGE__LISTEN": "null"}


def shown_by(
    name: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: tuple[str, str] = ("", ""),
    guard_s: int = GUARD_S,
) -> list[str]:
    """Run a notebook in a folder; return what each of its cells of code shows.

    changed: a text of its code, and another in its place. guard_s: for each cell.
    """
    for key, value in surroundings(folder).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    docs = folder / "docs"
    docs.mkdir()
    (folder / "configs").symlink_to(ROOT / "configs")
    read: Any = nbformat.read
    book = read(ROOT / "docs" / name, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert any(changed[0] in cell.source for cell in code)
    for cell in code:
        cell.source = cell.source.replace(*changed) if changed[0] else cell.source
    client = NotebookClient(
        book, timeout=guard_s, iopub_timeout=180, resources={"metadata": {"path": docs}}
    )
    client.execute()
    return [
        "".join(out.get("text", "") or str(out.get("data", {})) for out in cell.outputs)
        for cell in code
    ]


@pytest.mark.parametrize(
    ("small", "seeds", "guard_s"),
    [(True, 1, GUARD_S), pytest.param(False, 3, WHOLE_S, marks=pytest.mark.slow)],
    ids=["small", "whole"],
)
def test_a_method_in_a_notebook_is_compared_with_eleven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool, seeds: int, guard_s: int
) -> None:
    changed = ("small = False", f"small = {small}")
    shown = shown_by("your-method.ipynb", tmp_path, monkeypatch, changed, guard_s)
    for seed in range(1, seeds + 1):
        assert shown[2].count(f"seed {seed}: ") == 13
    assert "failed" not in shown[2]
    table = dict(re.findall(r"^(\w+) +(\d+\.\d)$", shown[3], re.M))
    assert len(table) == 13
    assert {"mine", "local", "gda", "plan"} < {*table}
    assert len(re.findall(r"points \(", shown[4])) == 12
    assert "image/png" in shown[5]


def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_by("tour.ipynb", tmp_path, monkeypatch)
    assert "zerodfl fednode-mini round 3" in shown[1]
    assert re.search(r"context 1 \[\('\w+', \d", shown[3])
    assert "image/png" in shown[4]
