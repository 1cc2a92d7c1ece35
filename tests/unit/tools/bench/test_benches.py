"""The benches run, in their smallest sizes; figures of time are looked at for sense only."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fednode.wire import codec
from tools.bench.merges import RULES, merges
from tools.bench.mesh import PROMPT_BYTES, mesh
from tools.bench.scale import scale
from tools.bench.start import start
from tools.bench.timer import Timer, show
from tools.bench.tuning import tuning
from tools.bench.wire import CALLS_MIN, message, wire


def rows(command: click.Command, *words: str) -> list[dict[str, Any]]:
    ran = CliRunner().invoke(command, [*words, "--json"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    found: list[dict[str, Any]] = json.loads(ran.stdout)["rows"]
    return found


def test_a_step_is_timed_beside_open_clip() -> None:
    words = ("--policy", "zerodfl", "--policy", "fedmaple", "--classes", "2", "--repeats", "1")
    found = rows(tuning, *words)
    assert [row["row"] for row in found] == ["encoding", "zerodfl", "fedmaple"]
    for row in found:
        assert row["ratio"] == pytest.approx(row["reference, s"] / row["ours, s"])
        assert row["ours, s"] > 0


def test_every_rule_is_merged() -> None:
    found = rows(merges, "--numbers", "100", "--repeats", "1")
    assert [row["rule"] for row in found] == list(RULES)
    assert all(row["memory"] > 0 for row in found)


def test_a_start_is_timed_by_its_parts() -> None:
    cold, warm = rows(start, "--classes", "2", "--warm", "1", "--no-daemons")
    for row in (cold, warm):
        parts = (row["imports, s"], row["model, s"], row["features and step, s"])
        assert min(parts) > 0
        assert sum(parts) <= row["all, s"] + 0.1


def test_wire_has_a_row_for_each_size_with_and_without_tls() -> None:
    found = rows(wire, "--kib", "4", "--kib", "2048", "--calls", "2")
    assert [(row["prompts, bytes"], row["TLS"]) for row in found] == [
        (4096, True), (2 << 20, True), (4096, False), (2 << 20, False),
    ]  # fmt: skip
    for row in found:
        assert row["calls"] == CALLS_MIN
        assert row["exchange / echo"] == pytest.approx(row["exchange, ms"] / row["echo, ms"])


def test_what_wire_sends_is_a_message_with_prompts_of_that_size() -> None:
    said = message(4096)
    assert codec.decode(codec.encode(said, "float32")) == said
    assert sum(one.nbytes for one in said.tensors.values()) == 4096


@pytest.mark.parametrize("tls", [False, True])
def test_mesh_counts_the_prompts_that_zerodfl_sends(tls: bool) -> None:
    words = ["--nodes", "2", "--rounds", "30", "--mode", "sync", "--no-death"]
    (row,) = rows(mesh, *words, *(["--tls"] if tls else []))
    assert (row["mode"], row["nodes"], row["TLS"], row["recovery, s"]) == ("sync", 2, tls, None)
    assert row["rounds"] >= 30
    assert row["prompts"] == pytest.approx(2, rel=0.2)  # each node sends to the other, each round
    assert row["control"] >= 0
    assert row["bytes"] > row["prompts"] * PROMPT_BYTES


@pytest.mark.parametrize("policy", ["zerodfl", "promptfl"])
def test_scale_runs_a_mesh_of_a_policy(policy: str) -> None:
    (row,) = rows(scale, "--nodes", "4", "--rounds", "3", "--policy", policy)
    assert (row["policy"], row["nodes"], row["rounds"], row["live"]) == (policy, 4, 3, 3)


def test_a_table_rounds_to_three_digits(capsys: pytest.CaptureFixture[str]) -> None:
    timer = Timer()
    for seconds in (1.0, 2.0, 4.0):
        timer.seconds["x"].append(seconds)
    assert timer.median("x") == 2.0
    show("title", [{"row": "x", "s": 0.012345, "n": 12_345, "none": None}], note="a note")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["title"], ["row", "s", "n", "none"], ["x", "0.0123", "12,345", "-"],
                     ["a", "note"]]  # fmt: skip
