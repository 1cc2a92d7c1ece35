"""Results by class as text, JSON and CSV: what `fednode eval` prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len, set_cell_size

from fednode.core import foreign
from fednode.terminal.formats import csv_table

if TYPE_CHECKING:
    from fednode.learn.evaluation import ClassResult, Evaluation

CLASSES_SHOWN: Final = 20
"""Most classes in the text; above this number it shows those of the lowest sensitivity."""
MATRIX_SHOWN: Final = 10
"""Most classes of a confusion matrix in the text; above it the most frequent mistakes are shown."""
MISTAKES_SHOWN: Final = 10
NAME_WIDTH: Final = 30
Results = Mapping[str, Mapping[str, "Evaluation"]]
"""Results by kind of prompts ("zero-shot", "tuned") and test set."""


def tree(results: Results) -> dict[str, Any]:
    """Return results as JSON types: by test set its class names, then each kind of prompts."""
    sets = results["tuned"]
    return {
        name: {
            "classes": list(sets[name].classes),
            **{prompts: one[name].as_json() for prompts, one in results.items()},
        }
        for name in sets
    }


def csv(results: Results) -> str:
    """Return a line for each test set, kind of prompts and class, as CSV.

    The columns behind the figures are the confusion matrix: how many images of the line's class
    were predicted as each class. Undefined figures, and classes of another test set, are empty.
    """
    every = [one for sets in results.values() for one in sets.values()]
    names = tuple(dict.fromkeys(name for one in every for name in one.classes))
    head = ["test set", "prompts", "class", "images", "sensitivity", "specificity", "auc"]
    lines: list[list[Any]] = [[*head, *(f"predicted as {name}" for name in names)]]
    for prompts, sets in results.items():
        for test, one in sets.items():
            for row, counts in zip(one.by_class, one.confusion.tolist(), strict=True):
                predicted = dict(zip(one.classes, counts, strict=True))
                lines.append(
                    [
                        *(test, prompts, row.name, row.images),
                        *("" if math.isnan(value) else f"{value:.6f}" for value in row.figures),
                        *(predicted.get(name, "") for name in names),
                    ]
                )
    return csv_table(lines)


def text(name: str, found: Evaluation) -> list[str]:
    """Return a table of the classes of a test set, and its confusion matrix, for people."""
    rows = list(enumerate(found.by_class, 1))
    title = f"{name} test images, tuned prompts, each class against the rest, in percent:"
    if len(rows) > CLASSES_SHOWN:
        title = f"{title[:-1]}; the {CLASSES_SHOWN} classes of the lowest sensitivity:"
        rows = sorted(rows, key=lambda one: _lowest_first(one[1]))[:CLASSES_SHOWN]
    body = [[f"{at} {foreign.line(one.name)}", *_figures(one)] for at, one in rows]
    body.append([f"mean of {len(found.classes)} classes", *_figures(found.mean)])
    head = ["class", "images", "sensitivity", "specificity", "AUC"]
    lines = [title, *_aligned([head, *body]), ""]
    if len(found.classes) <= MATRIX_SHOWN:
        return [*lines, *_matrix(found)]
    mistakes = found.confusions()
    worst = mistakes[:MISTAKES_SHOWN]
    lines.append(f"Most frequent mistakes, {len(worst)} of {len(mistakes)} kinds:")
    shown = [[str(count), foreign.line(true), foreign.line(other)] for count, true, other in worst]
    return [*lines, *(f"{count:>8}  {true} predicted as {other}" for count, true, other in shown)]


def _matrix(found: Evaluation) -> list[str]:
    numbers = [str(at) for at in range(1, len(found.classes) + 1)]
    body = [
        [f"{at} {foreign.line(name)}", *map(str, counts)]
        for at, name, counts in zip(numbers, found.classes, found.confusion.tolist(), strict=True)
    ]
    title = "Confusion matrix: a row for each true class, a column for each predicted class:"
    return [title, *_aligned([["", *numbers], *body])]


def _aligned(lines: Sequence[Sequence[str]]) -> Iterable[str]:
    """Yield lines of cells: the first column to the left, the others to the right."""
    first = min(NAME_WIDTH, max(cell_len(one[0]) for one in lines))
    widths = [max(len(one[at]) for one in lines) for at in range(1, len(lines[0]))]
    for name, *cells in lines:
        shown = name if cell_len(name) <= first else set_cell_size(name, first - 1) + foreign.CUT
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        yield "  ".join([set_cell_size(shown, first), *padded])


def _figures(one: ClassResult) -> list[str]:
    shown = ["-" if math.isnan(value) else f"{100 * value:.1f}" for value in one.figures]
    return [str(one.images), *shown]


def _lowest_first(one: ClassResult) -> float:
    return math.inf if math.isnan(one.sensitivity) else one.sensitivity
