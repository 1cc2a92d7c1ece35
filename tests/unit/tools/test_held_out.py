"""The tables of methods and `init` say what the scores say."""

from __future__ import annotations

import csv
import math
import re
import statistics

import pytest

from fednode.commands.init import WHY
from tools.held_out import COLUMNS, PAGE, ROOT, SCORES, by_seed, gain, half_width, written

METHODS = PAGE.read_text("utf-8")


def test_the_page_shows_the_figures_of_the_scores() -> None:
    assert written(METHODS) == METHODS, "run python -m tools.held_out"
    changed = METHODS.replace("| local | 69.0 |", "| local | 69.1 |")
    assert changed != METHODS
    assert written(changed) == METHODS


@pytest.mark.parametrize("method", ["zero-shot", "local", "gda", "FedPGP", "FedTPG"])
def test_readme_has_the_figures_of_the_scores(method: str) -> None:
    """Accuracy on own classes, on all nodes' classes and on a domain that no node has."""
    base, own, left_out = COLUMNS[0], COLUMNS[2], COLUMNS[4]
    cells = []
    for file, test in (own, base, left_out):
        found = gain(file, test, method)
        assert found is not None
        cells.append(f"**{found.accuracy:.1f}**" if found.low > 0 else f"{found.accuracy:.1f}")
    (row,) = re.findall(rf"^\| {method} \| .*$", (ROOT / "README.md").read_text("utf-8"), re.M)
    assert row.endswith(f" | {' | '.join(cells)} |")


def test_a_difference_is_paired_by_seed() -> None:
    with (SCORES / "caltech-base-to-new.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["test"] == "base"]
    ours, control = (
        [
            statistics.mean(
                100 * float(row["accuracy"])
                for row in rows
                if (row["method"], row["seed"]) == (label, str(seed))
            )
            for seed in range(1, 6)
        ]
        for label in ("FedTPG", "local (CoOp)")
    )
    found = gain("caltech-base-to-new", "base", "FedTPG")
    assert found is not None
    differences = [a - b for a, b in zip(ours, control, strict=True)]
    assert found.accuracy == pytest.approx(statistics.mean(ours))
    assert found.points == pytest.approx(statistics.mean(differences))
    # The quantile of Student's t with four degrees of freedom, from a printed table.
    half = 2.776 * statistics.stdev(differences) / math.sqrt(5)
    assert half_width(differences) == pytest.approx(half, rel=1e-3)
    assert (found.low, found.high) == pytest.approx(
        (found.points - half, found.points + half), rel=1e-2
    )
    assert by_seed("caltech-base-to-new", "base", "no such method") == {}


def test_init_and_the_page_say_the_figures_of_the_same_classes() -> None:
    def seeds(label: str) -> dict[int, float]:
        found = by_seed("caltech-same-classes", "", label)
        assert found.keys() == {1, 2, 3, 4, 5}
        return found

    def figures(ours: str, control: str) -> tuple[str, str]:
        differences = [seeds(ours)[seed] - seeds(control)[seed] for seed in range(1, 6)]
        points, half = statistics.mean(differences), half_width(differences)
        return f"{points:+.1f}", f"{points - half:+.1f} to {points + half:+.1f}"

    local, alone = "local (CoOp)", "alone, same head"
    for control in (local, alone):
        assert all(figure in WHY for figure in figures("gda, means", control)), control
    means = {
        label: statistics.mean(seeds(label).values()) for label in ("gda, means", local, alone)
    }
    ours, theirs, same = (f"{means[label]:.1f}" for label in ("gda, means", local, alone))
    assert f"[{ours}; local {theirs}; the same classifier without peers {same}]" in METHODS
    gained, promptfl = (
        f"{statistics.mean(seeds(method).values()) - means[local]:.1f}"
        for method in ("FedPGP", "PromptFL")
    )
    assert f"With the same classes FedPGP gained {gained} points over `local`" in METHODS
    assert f"PromptFL {promptfl} " in METHODS
