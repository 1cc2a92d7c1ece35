"""Results by class as text, JSON and CSV: what `fednode eval` prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len, set_cell_size

from fednode.core import foreign
from fednode.evaluation.results import FIGURES
from fednode.terminal.options import csv_table

if TYPE_CHECKING:
    from fednode.evaluation.results import ClassResult, Evaluation

CLASSES_SHOWN: Final = 20
"""Most classes in the text; above this number it shows those of the lowest sensitivity."""
MATRIX_SHOWN: Final = 10
"""Most classes of a confusion matrix in the text; above it the most frequent mistakes are shown."""
MISTAKES_SHOWN: Final = 10
NAME_WIDTH: Final = 30
ENDS: Final = ("", " 95 % low", " 95 % high")
"""Columns of a figure and its interval in the CSV."""
Results = Mapping[str, Mapping[str, "Evaluation"]]
"""Results by kind of prompts ("zero-shot", "alone", "tuned") and test set."""


def tree(results: Results) -> dict[str, Any]:
    """Return results as JSON types: by test set its class names, then each kind of prompts."""
    sets = results["tuned"]
    return {
        name: {
            "classes": list(sets[name].classes),
            **{prompts: sets_of[name].as_json() for prompts, sets_of in results.items()},
        }
        for name in sets
    }


def csv(results: Results) -> str:
    """Return a line for each test set, kind of prompts and class, as CSV.

    The two columns behind a figure are its 95 % interval; `patients` counts those of the test set,
    if they are known. The columns behind the figures are
    the confusion matrix: how many images of the line's class were predicted as each class.
    Undefined figures, and classes of another test set, are empty.
    """
    every = [evaluation for sets in results.values() for evaluation in sets.values()]
    names = tuple(dict.fromkeys(name for evaluation in every for name in evaluation.classes))
    head = ["test set", "prompts", "class", "images", "patients"]
    head += [figure + end for figure in FIGURES for end in ENDS]
    lines: list[list[Any]] = [[*head, *(f"predicted as {name}" for name in names)]]
    for prompts, sets in results.items():
        for test, evaluation in sets.items():
            matrix, patients = evaluation.confusion.tolist(), evaluation.patient_count
            for at, row in enumerate(evaluation.by_class):
                predicted = dict(zip(evaluation.classes, matrix[at], strict=True))
                figures = [
                    value
                    for figure, share in zip(FIGURES, row.figures, strict=True)
                    for value in (share, *evaluation.bounds[figure][at])
                ]
                lines.append(
                    [
                        *(test, prompts, row.name, row.images),
                        "" if patients is None else patients,
                        *("" if math.isnan(value) else f"{value:.6f}" for value in figures),
                        *(predicted.get(name, "") for name in names),
                    ]
                )
    return csv_table(lines)


def text(name: str, evaluation: Evaluation, others: Mapping[str, Evaluation]) -> list[str]:
    """Return a table of the classes of a test set, and its confusion matrix, for people.

    others: results of other prompts, by kind; the table has their sensitivities.
    """
    rows = list(enumerate(evaluation.by_class, 1))
    title = f"{name} {evaluation.kind}, tuned prompts, each class against the rest, in percent:"
    if others:
        title = f"{title[:-1]} ({' and '.join(others)}: the sensitivity):"
    if len(rows) > CLASSES_SHOWN:
        title = f"{title[:-1]}; the {CLASSES_SHOWN} classes of the lowest sensitivity:"
        rows = sorted(rows, key=lambda row: _lowest_first(row[1]))[:CLASSES_SHOWN]
    beside = {kind: {row.name: row for row in other.by_class} for kind, other in others.items()}
    two, bounds = len(rows) == 2, evaluation.bounds
    body = [
        [
            f"{at} {foreign.line(row.name)}",
            *_figures(
                row,
                [span(bounds[figure][at - 1]) for figure in FIGURES],
                [held[row.name] for held in beside.values()],
                two,
            ),
        ]
        for at, row in rows
    ]
    means = [other.mean for other in others.values()]
    name = f"mean of {len(evaluation.classes)} classes"
    body.append([name, *_figures(evaluation.mean, [""] * len(FIGURES), means, two)])
    ends = ["specificity", "95 %", "AUC", "95 %"] if two else ["specificity", "AUC"]
    head = ["class", "images", "sensitivity", "95 %", *others, *ends]
    lines = [title, *_aligned([head, *body]), ""]
    if len(evaluation.classes) <= MATRIX_SHOWN:
        return [*lines, *_matrix(evaluation)]
    mistakes = evaluation.confusions()
    worst = mistakes[:MISTAKES_SHOWN]
    lines.append(f"Most frequent mistakes, {len(worst)} of {len(mistakes)} kinds:")
    shown = [[str(count), foreign.line(true), foreign.line(other)] for count, true, other in worst]
    return [*lines, *(f"{count:>8}  {true} predicted as {other}" for count, true, other in shown)]


def _matrix(evaluation: Evaluation) -> list[str]:
    numbers = [str(at) for at in range(1, len(evaluation.classes) + 1)]
    body = [
        [f"{at} {foreign.line(name)}", *map(str, counts)]
        for at, name, counts in zip(
            numbers, evaluation.classes, evaluation.confusion.tolist(), strict=True
        )
    ]
    title = "Confusion matrix: a row for each true class, a column for each predicted class:"
    return [title, *_aligned([["", *numbers], *body])]


def _aligned(lines: Sequence[Sequence[str]]) -> Iterable[str]:
    """Yield lines of cells: the first column to the left, the others to the right."""
    first = min(NAME_WIDTH, max(cell_len(row[0]) for row in lines))
    widths = [max(len(row[at]) for row in lines) for at in range(1, len(lines[0]))]
    for name, *cells in lines:
        shown = name if cell_len(name) <= first else set_cell_size(name, first - 1) + foreign.CUT
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        yield "  ".join([set_cell_size(shown, first), *padded])


def span(interval: tuple[float, float]) -> str:
    """Return a 95 % interval in percent: "41-62"."""
    low, high = interval
    return "-" if math.isnan(low) else f"{100 * low:.0f}-{100 * high:.0f}"


def _figures(
    result: ClassResult, spans: Sequence[str], others: Iterable[ClassResult], two: bool
) -> list[str]:
    """Return the cells of a line.

    spans: the intervals of FIGURES. others: the class's results with other prompts. two: of two
    classes all intervals are shown, of more those of the sensitivity.
    """
    own, *rest = map(_share, result.figures)
    beside = (_share(other.sensitivity) for other in others)
    ends = zip(rest, spans[1:], strict=True)
    shown = [cell for pair in ends for cell in (pair if two else pair[:1])]
    return [str(result.images), own, spans[0], *beside, *shown]


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"


def _lowest_first(result: ClassResult) -> float:
    return math.inf if math.isnan(result.sensitivity) else result.sensitivity
