"""The demo's arithmetic against independent computations, and its words against its numbers."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bootstrap import render, report
from bootstrap.report import Outcome, Point


def outcome(
    method: str, seed: int, node: str, new: float, base: float = 0.5, sent: int = 0
) -> Outcome:
    metrics = {"base": base, "new": new, "own": 0.9}
    return Outcome(
        method=method,
        seed=seed,
        node=node,
        metrics=metrics,
        zero_shot={"base": 0.4, "new": 0.3, "own": 0.6},
        rounds=2,
        payload_bytes=sent,
        serialized_bytes=2 * sent,
        wire_bytes=3 * sent,
        points=(Point(1, {"base": 0.4, "new": 0.2}, sent // 2), Point(2, metrics, sent)),
    )


def demo(gains: Sequence[Sequence[float]], base: float = 0.2) -> list[Outcome]:
    """Return both methods' outcomes; gains: of the method by seed and node."""
    found = []
    for seed, of_seed in enumerate(gains, 1):
        for number, gain in enumerate(of_seed, 1):
            local = base + 0.01 * number
            found.append(outcome("local", seed, f"node-{number}", local))
            found.append(outcome("zerodfl", seed, f"node-{number}", local + gain, sent=100))
    return found


def test_mean_and_deviation_are_the_textbook_ones() -> None:
    values = [0.31, 0.42, 0.27, 0.55]
    assert report.mean(values) == pytest.approx(statistics.mean(values))
    assert report.std(values) == pytest.approx(statistics.stdev(values))
    assert report.std([0.4]) == 0.0
    assert math.isnan(report.mean([]))
    assert math.isnan(report.std([]))


def test_interval_of_equal_values_is_that_value() -> None:
    assert report.clustered_bootstrap([[0.25, 0.25], [0.25]], 100) == (0.25, 0.25)
    assert all(map(math.isnan, report.clustered_bootstrap([[], []], 100)))


def test_interval_repeats_and_contains_the_mean() -> None:
    groups = [[0.1, 0.2, 0.0], [0.3, 0.1, 0.2], [0.0, -0.1, 0.2]]
    low, high = report.clustered_bootstrap(groups, 2000)
    assert (low, high) == report.clustered_bootstrap(groups, 2000)
    assert low < report.mean(list(itertools.chain(*groups))) < high


def test_interval_has_the_width_that_theory_gives() -> None:
    """Two stages: Var = population variance of the group means / G + mean inner variance / (G m).

    With many groups the bootstrap distribution is nearly normal, so the interval is +-1.96 of it.
    """
    generator = np.random.default_rng(5)
    centres = generator.normal(0.0, 0.3, size=60)
    groups = centres[:, None] + generator.normal(0.0, 0.2, size=(60, 8))
    between = np.var(groups.mean(axis=1)) / 60
    within = np.mean(np.var(groups, axis=1)) / (60 * 8)
    expected = 2 * 1.96 * math.sqrt(between + within)
    low, high = report.clustered_bootstrap(groups.tolist(), 8000)
    assert high - low == pytest.approx(expected, rel=0.05)
    assert (low + high) / 2 == pytest.approx(groups.mean(), abs=0.1 * expected)


def test_seeds_that_disagree_widen_the_interval() -> None:
    apart = report.clustered_bootstrap([[0.0] * 5, [0.1] * 5, [0.2] * 5], 2000)
    mixed = report.clustered_bootstrap([[0.0, 0.1, 0.2, 0.0, 0.1]] * 3, 2000)
    assert apart[1] - apart[0] > 2 * (mixed[1] - mixed[0])


def test_rows_are_zero_shot_then_the_methods() -> None:
    zero, local, ours = report.rows(demo([[0.1, 0.1], [0.1, 0.1]]), ("local", "zerodfl"))
    assert [one.method for one in (zero, local, ours)] == ["zero-shot", "local", "zerodfl"]
    assert (zero.n, local.n, ours.n) == (4, 4, 4)
    assert (zero.new_mean, zero.new_std) == pytest.approx((0.3, 0.0))
    assert local.new_mean == pytest.approx(0.215)
    assert local.new_std == pytest.approx(statistics.stdev([0.21, 0.22, 0.21, 0.22]))
    assert ours.base_mean == pytest.approx(0.5)
    # Two nodes send 100 bytes each in either run.
    assert (local.payload_bytes, ours.payload_bytes) == (0, 200)
    assert (ours.serialized_bytes, ours.wire_bytes) == (400, 600)
    assert zero.payload_bytes == 0


def test_difference_is_paired_and_ignores_who_has_no_pair() -> None:
    outcomes = demo([[0.1, 0.3], [0.2, -0.2]])
    lonely = outcome("zerodfl", 7, "node-1", new=0.99)
    found = report.difference([*outcomes, lonely], "zerodfl", "local", "new", 500)
    assert found.mean == pytest.approx(0.1)
    assert (found.pairs, found.seeds, found.wins) == (4, 2, 3)
    assert found.low <= found.mean <= found.high
    same = report.difference(outcomes, "zerodfl", "local", "own", 500)
    assert (same.mean, same.low, same.high, same.wins) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("gain", "base", "words"),
    [
        (0.1, 0.2, ["beats local on new classes: +10.0 points", "6 of 6", "+1.5 points from zero"]),
        (-0.1, 0.5, ["is worse than local on new classes: -10.0", "+11.5 points from zero-shot"]),
        (0.0, 0.2, ["does not clearly beat", "no difference", "untuned model is better"]),
        (0.0, 0.2, ["local lost 8.5 points on new classes against zero-shot"]),
        (0.0, 0.285, ["It equals zero-shot", "local lost nothing on new classes"]),
        (0.0, 0.29, ["It is +0.5 points from zero-shot."]),
    ],
)
def test_verdict_follows_the_numbers(gain: float, base: float, words: list[str]) -> None:
    found = report.build(demo([[gain, gain]] * 3, base), "zerodfl", "local")
    assert all(word in report.verdict(found) for word in words)
    assert report.verdict(found) in render.markdown(found)


def test_verdict_without_pairs_says_so() -> None:
    found = report.build([outcome("local", 1, "node-1", 0.2)], "zerodfl", "local")
    assert "nothing can be compared" in report.verdict(found)
    assert "| zerodfl | - | - | - |" in render.markdown(found)
    assert found.as_json()["rows"][2]["new_mean"] is None


def test_written_report_holds_what_was_promised(tmp_path: Path) -> None:
    about = {"title": "A trial", "seeds": [1, 2], "settings": {"data": {"shots": 8}}}
    found = report.build(demo([[0.1, 0.2]] * 2), "zerodfl", "local", about, ["node-1 fell over."])
    assert render.write(found, tmp_path) == []
    read = json.loads((tmp_path / "report.json").read_text())
    keys = {"method", "base_mean", "base_std", "new_mean", "new_std", "payload_bytes"}
    assert all(keys <= row.keys() for row in read["rows"])
    assert "fraction from 0 to 1" in read["units"]["accuracy"]
    assert read["about"]["seeds"] == [1, 2]
    assert "only 2 seeds" in read["differences_are"]
    assert len(read["outcomes"]) == 8
    text = (tmp_path / "report.md").read_text()
    assert "# A trial" in text
    assert "| zero-shot | 40.0 ± 0.0 | 30.0 ± 0.0 | 60.0 ± 0.0 | 0 B | 0 B |" in text
    assert "- node-1 fell over." in text
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_report_is_whole_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = report.build(demo([[0.1]]), "zerodfl", "local")
    assert render.write(found, tmp_path) == [render.NO_MATPLOTLIB]
    assert "plot.png" not in (tmp_path / "report.md").read_text()
    assert (tmp_path / "report.json").exists()


def test_curves_are_means_over_nodes_and_seeds() -> None:
    outcomes = demo([[0.1, 0.3], [0.1, 0.3]])
    rounds, means, lows, highs = render.curve(outcomes, "zerodfl", "new")
    assert rounds == [1, 2]
    assert means == pytest.approx([20.0, 41.5])
    assert (lows[1], highs[1]) == pytest.approx((31.0, 52.0))
    assert render.sent_bytes(outcomes, "zerodfl") == ([1, 2], [100.0, 200.0])
    # A node that was evaluated less often leaves the others' curve alone.
    shorter = [*outcomes[:-1], replace(outcomes[-1], points=())]
    assert render.curve(shorter, "zerodfl", "new")[1][1] == pytest.approx((31 + 52 + 31) / 3)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB")],
)
def test_sizes_have_the_unit_that_suits_them(count: float, text: str) -> None:
    assert render.size(count) == text


def test_percent_has_a_dash_where_nothing_was_measured() -> None:
    assert render.percent(0.1234) == "12.3"
    assert render.percent(0.1234, 0.05) == "12.3 ± 5.0"
    assert render.percent(float("nan"), 0.0) == "-"
