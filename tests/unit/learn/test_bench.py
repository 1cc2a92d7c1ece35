"""The benchmark compares like with like, and says when its reference is no fair one.

Method: a tiny architecture; figures of time are looked at for sense, never for size.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from node.commands import bench as command
from node.errors import ConfigError
from node.learn import bench
from tests.unit.clip import tiny

SMALL = tuple(
    bench.Task(f"small-{how}", 5, 3, 0 if how == "none" else 10, how)
    for how in ("none", "cached", "encoded")
)


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(bench, "MATRIX", 64)
    monkeypatch.setenv("MALLOC_TOP_PAD_", "0")  # or the command would begin a process anew
    monkeypatch.setattr(bench, "TASKS", SMALL)
    return tiny.register(tmp_path)


def test_both_sides_have_the_same_gradient(name: str) -> None:
    frozen = bench.random_model(name, "float32", "cpu")
    for row in bench.rows(frozen, 1):
        assert row.difference < 1e-4, row
        assert row.ratio == pytest.approx(row.reference_s / row.ours_s)
        assert row.floor_share == pytest.approx(row.floor_s / row.ours_s)


def test_the_work_of_ours_is_less_and_counted_alike(name: str) -> None:
    frozen = bench.random_model(name, "float32", "cpu")
    names = ("cat", "dog", "a word", "two words", "x")
    for task in SMALL:
        theirs = bench._flops(bench._Reference(frozen, task, names).step)
        ours = bench._flops(bench._Ours(frozen, task, names).step)
        assert 0 < ours < theirs / 2


def test_bfloat16_rows_are_named_so(name: str) -> None:
    frozen = bench.random_model(name, "bfloat16", "cpu")
    assert [row.name for row in bench.rows(frozen, 1)] == [f"{one.name}-bf16" for one in SMALL]


def run(name: str, *words: str) -> tuple[str, BaseException | None]:
    found = CliRunner().invoke(command.bench, ["tuning", "--model", name, *words])
    return found.stdout, found.exception


def test_json_has_a_row_for_each_task(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "REFERENCE_SHARE", 0.0)
    words = ("--repeats", "1", "--format", "json", "--threads", "1", "--bf16")
    out, fault = run(name, *words)
    assert fault is None
    found = json.loads(out)
    assert [row["name"] for row in found["rows"]] == [
        *(one.name for one in SMALL),
        *(f"{one.name}-bf16" for one in SMALL),
    ]
    assert {"reference_s", "ours_s", "ratio", "floor_s"} <= set(found["rows"][0])


def test_a_slow_reference_voids_the_ratios(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "REFERENCE_SHARE", 1e9)
    out, fault = run(name, "--repeats", "1", "--threads", "1")
    assert isinstance(fault, ConfigError)
    assert "these ratios are void" in str(fault)
    assert "tiny-test-model" in out


def test_a_process_is_begun_anew_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "execve", lambda path, words, env: begun.append((words, env)))
    for name in command.ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    command._keep_memory()
    ((words, env),) = begun
    assert words[1:3] == ["-m", "node.cli"]
    assert command.ALLOCATOR.items() <= env.items()
    for name, value in command.ALLOCATOR.items():
        monkeypatch.setenv(name, value)
    command._keep_memory()
    assert len(begun) == 1


def test_an_unknown_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "0")
    _, fault = run("ViT-Z-1")
    assert "There is no architecture 'ViT-Z-1'" in str(fault)
    _, fault = run("ViT-B-16", "--repeats", "0")
    assert "--repeats" in str(fault)
