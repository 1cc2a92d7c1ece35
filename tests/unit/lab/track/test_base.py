"""Settings and figures in the form that every tracker takes, and notes of runs."""

from __future__ import annotations

import math
from pathlib import Path

from fednode.lab.track.base import Run, finite, flat, keep_id, kept_id, note_file


def test_settings_are_flat_and_figures_finite() -> None:
    tree = {"a": {"b": 1, "c": {}}, "d": [1, 2], "e": None, "f": ("x",)}
    assert flat(tree) == {"a.b": 1, "a.c": "{}", "d": "[1, 2]", "e": None, "f": "('x',)"}
    assert finite({"a": 1, "b": True, "c": math.inf, "d": "1", "e": 0.5}) == {"a": 1.0, "e": 0.5}


def test_a_run_keeps_its_id_and_a_new_id_forgets_the_note(tmp_path: Path) -> None:
    run = Run(name="node 1/x", group="m", folder=tmp_path)
    first = kept_id(run, "wandb")
    note_file(run, "wandb").write_text("{}")
    assert kept_id(run, "wandb") == first
    assert note_file(run, "wandb").exists()
    assert keep_id(run, "wandb", "another") == kept_id(run, "wandb") == "another"
    assert not note_file(run, "wandb").exists()
