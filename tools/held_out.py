"""The table of methods in docs/methods.md, from the scores of experiments that chose no setting.

`python -m tools.held_out` writes it into docs/methods.md, and a test compares them.

The table compares methods with `local`. The mean over nodes and domains of one seed is one number.
The interval of a difference is Student's t over the paired differences of all seeds.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/methods.md"
SCORES: Final = ROOT / "docs/scores"
CONTROL: Final = "local (CoOp)"
COLUMNS: Final = (
    ("caltech-base-to-new", "base"),
    ("caltech-base-to-new", "new"),
    ("caltech-base-to-new", "own"),
    ("pacs-in-domain", ""),
    ("pacs-leave-one-out", ""),
)
"""The file and the test of each column; "" is the mean of all tests."""
METHODS: Final[Mapping[str, Sequence[str]]] = {
    "zero-shot": ("zero-shot",),
    "local": (CONTROL,),
    "local, gda's classifier": ("alone, same head",),
    "gda": ("gda, means",),
    "ZeroDFL": ("ZeroDFL, s = 4, own start, rate 0.03", "ZeroDFL"),
    "FedPGP": ("FedPGP",),
    "PromptFL": ("PromptFL",),
    "FedTPG": ("FedTPG",),
    "FedMaPLe": ("FedMaPLe",),
}
"""By the name in the table: the labels in the files, of which the first that is there counts."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Accuracy in percent, and the points above `local` with their 95 % interval."""

    accuracy: float
    points: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:  # of `local` itself
            return f"{self.accuracy:.1f}"
        said = f"{self.accuracy:.1f} ({self.low:+.1f} to {self.high:+.1f})"
        return f"**{said}**" if self.low > 0 else said


def gain(file: str, test: str, method: str) -> Gain | None:
    """Return a method's figures in a column; None if the file has no such method."""
    ours = next((found for one in METHODS[method] if (found := by_seed(file, test, one))), {})
    control = by_seed(file, test, CONTROL)
    both = sorted(ours.keys() & control.keys())
    if len(both) < 2:
        return None
    differences = [ours[seed] - control[seed] for seed in both]
    points, half = statistics.mean(differences), half_width(differences)
    accuracy = statistics.mean(ours[seed] for seed in both)
    return Gain(accuracy, points, points - half, points + half)


def half_width(values: Sequence[float]) -> float:
    """Return half the 95 % interval of a mean (Student's t)."""
    from scipy import stats

    count = len(values)
    return float(stats.t.ppf(0.975, count - 1) * statistics.stdev(values) / count**0.5)


def by_seed(file: str, test: str, label: str) -> dict[int, float]:
    """Return the accuracy in percent of each seed, as mean over tests and nodes."""
    found: dict[int, list[float]] = {}
    with (SCORES / f"{file}.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["method"] == label and test in ("", row["test"]):
                found.setdefault(int(row["seed"]), []).append(100 * float(row["accuracy"]))
    return {seed: statistics.mean(values) for seed, values in found.items()}


def table() -> str:
    """Return the rows of the table, without its head."""
    lines = []
    for method in METHODS:
        cells = [str(gain(file, test, method) or "") for file, test in COLUMNS]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def written(text: str) -> str:
    """Return a page with the rows of its table as they follow from the scores."""
    place = re.compile(r"(<!-- tools/held_out\.py -->\n(?:\|.*\n){2})(?:\|.*\n)*")
    return place.sub(lambda found: f"{found[1]}{table()}\n", text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
