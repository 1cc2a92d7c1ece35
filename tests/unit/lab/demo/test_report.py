"""The demo's arithmetic against independent computations, and its words against its numbers."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.lab.demo import render, report
from fednode.lab.demo.report import Outcome, Point


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
        (0.0, 0.2, ["does not clearly beat", "interval includes zero", "untuned model is better"]),
        (0.0, 0.2, ["local lost 8.5 points on new classes against zero-shot"]),
        (0.0, 0.285, ["zerodfl equals zero-shot", "local lost nothing on new classes"]),
        (0.0, 0.29, ["zerodfl is +0.5 points from zero-shot."]),
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
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    found = report.build(demo([[0.1]]), "zerodfl", "local")
    (note,) = render.write(found, tmp_path)
    assert note.startswith("plot.png was not drawn: matplotlib draws the curves and is not")
    assert "plot.png" not in (tmp_path / "report.md").read_text()
    assert (tmp_path / "report.json").exists()


def test_curves_are_means_over_nodes_and_seeds() -> None:
    outcomes = demo([[0.1, 0.3], [0.1, 0.3]])
    base, new, sent = render.panels(report.build(outcomes, "zerodfl", "local"))
    assert (base.level, new.level) == (("zero-shot", 40.0), ("zero-shot", 30.0))
    assert (base.band, new.band, sorted(new.lines)) == (True, True, ["local", "zerodfl"])
    assert new.lines["zerodfl"][1] == pytest.approx([20.0] * 4)
    assert new.lines["zerodfl"][2] == pytest.approx([31.0, 52.0] * 2)
    assert sent.lines["zerodfl"] == {1: [100 / 1024], 2: [200 / 1024]}
    # A node that was evaluated less often leaves the others' curve alone.
    shorter = [*outcomes[:-1], replace(outcomes[-1], points=())]
    assert render.curve(shorter, "zerodfl", "new")[2] == pytest.approx([31, 52, 31])


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
