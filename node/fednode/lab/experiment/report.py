"""Write an experiment down: report.md, report.json and CSV files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from fednode.core import foreign
from fednode.lab.experiment.cells import ELSEWHERE, Done, class_lines, confusion_lines, score_lines
from fednode.lab.experiment.files import learns, tuning_of
from fednode.lab.experiment.settings import Experiment
from fednode.lab.experiment.table import (
    MethodRow,
    difference_lines,
    differences,
    markdown_table,
    mean,
    rows,
    shown_columns,
    test_images,
)
from fednode.learn.privacy import epsilon
from fednode.learn.settings import PrivacySettings
from fednode.storage.disk import put
from fednode.terminal.options import csv_table

MIB: Final = 2**20
SIZES: Final = ("payload", "serialized", "wire", "paper")
ABOUT: Final = ("method", "seeds", "rounds")
"""The first columns of every table of methods."""


def write(
    experiment: Experiment,
    done: Sequence[Done],
    folder: Path,
    command: str,
    notes: Sequence[str] = (),
) -> Path:
    """Write all files; return the path of report.md. Raise StateError where it cannot.

    notes: sentences for the end of report.md. Without results by class there are no files of them.
    """
    files = {
        "report.md": markdown(experiment, done, command, notes),
        "scores.csv": csv_table(score_lines(done)),
        "curves.csv": csv_table(_curve_lines(done)),
        "report.json": _json(experiment, done, command),
    }
    if _by_class(done):
        files["classes.csv"] = csv_table(class_lines(done))
        files["confusion.csv"] = csv_table(confusion_lines(done))
    for name, text in files.items():
        put(folder / name, text, ELSEWHERE, for_all=True)
    return folder / "report.md"


def _by_class(done: Sequence[Done]) -> bool:
    """Tell whether there are results by class; those of daemons and of --scores have none."""
    return any(ended.outcome.get("by_node") for ended in done)


def markdown(
    experiment: Experiment, done: Sequence[Done], command: str, notes: Sequence[str] = ()
) -> str:
    table = rows(experiment, done)
    # A cell that --scores tells of knows its scores alone.
    model = next(
        (ended.outcome["backbone"] for ended in done if "backbone" in ended.outcome),
        experiment.model.name,
    )
    data, protocol = experiment.data, experiment.protocol
    seeds = ", ".join(map(str, experiment.seeds))
    many = len(experiment.seeds) > 1
    lines = [
        f"# {foreign.markdown(experiment.title)}",
        "",
        f"`{command}`",
        "",
        f"{protocol.kind}, {data.shots or 'all'} shots, {model}, "
        f"seed{'s' if many else ''} {seeds}. Accuracy in percent"
        + (", mean ± standard deviation over seeds." if many else "."),
        "",
        *_accuracy_lines(experiment, table, done),
        "",
        *difference_lines(experiment, done),
    ]
    if _by_class(done):
        files = "classes.csv and confusion.csv"
        lines += [f"Sensitivity, specificity, AUC and confusions by class: {files}.", ""]
    lines += [
        *_traffic_lines(table),
        *_privacy_lines(table),
        *_tuning_lines(experiment),
    ]
    faults = [
        f"- {ended.cell.title}: {foreign.markdown(ended.fault)}" for ended in done if ended.fault
    ]
    if faults:
        lines += ["", "## Cells that failed", "", *faults]
    if notes:
        lines += ["", *(f"- {foreign.markdown(note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _accuracy_lines(
    experiment: Experiment, table: Sequence[MethodRow], done: Sequence[Done]
) -> list[str]:
    names = shown_columns(experiment)
    papers = [name for name in names if any(name in row.method.paper for row in table)]
    head = [*ABOUT, *names, *(f"paper: {name}" for name in papers)]
    body = []
    for row in table:
        cells = (str(row.figures.get(name, "-")) for name in names)
        body.append(
            [*row.about, *cells, *(_shown(row.method.paper.get(key), "g") for key in papers)]
        )
    sizes = test_images(experiment, done)
    if sizes:
        counted = (_shown(sizes.get(name), ".0f") for name in names)
        body.append(["test images", "", "", *counted, *([""] * len(papers))])
    return markdown_table(head, body)


def _traffic_lines(table: Sequence[MethodRow]) -> list[str]:
    head = [
        *(*ABOUT, "messages", "payload MiB", "serialized MiB", "wire MiB (estimate)"),
        *("as its paper counts, MiB", "consensus distance", "seconds", "warnings"),
    ]
    body = []
    for row in table:
        sent = row.traffic or {}
        sizes = ((sent[key] / MIB if key in sent else None) for key in SIZES)
        cells = [_shown(sent.get("messages"), ".0f"), *(_shown(size, ".2f") for size in sizes)]
        cells.append(_shown(row.consensus if sent else None, ".3g"))
        body.append([*row.about, *cells, f"{row.seconds:.0f}", str(row.warnings)])
    text = (
        "Bytes of all nodes in one run, answers and probes left out; seconds of all runs together:"
    )
    return [text, "", *markdown_table(head, body)]


def _privacy_lines(table: Sequence[MethodRow]) -> list[str]:
    """Say what each method spent, as epsilon, where one clips and blurs."""
    body = []
    for row in table:
        kept = PrivacySettings(**row.method.privacy)
        if kept.clip is None or row.traffic is None or row.rounds is None:
            continue
        spent = epsilon([(kept.noise, row.rounds)], kept.delta)
        cells = [f"{kept.clip:g}", f"{kept.noise:g}", f"{spent:.3g}", f"{kept.delta:g}"]
        body.append([*row.about, *cells])
    if not body:
        return []
    text = (
        "Clipping and noise: epsilon of one node's whole data set, per message, over all rounds "
        "(node/fednode/learn/privacy.py); no guarantee for single images, and drawn from the seed "
        "here:"
    )
    return ["", text, "", *markdown_table([*ABOUT, "clip", "noise", "epsilon", "delta"], body)]


def _tuning_lines(experiment: Experiment) -> list[str]:
    """Return a table of the keys of `tuning` in which the methods that learn differ."""
    tunings = {
        method.label: tuning_of(experiment, method)
        for method in experiment.methods
        if learns(method)
    }
    every = list(tunings.values())
    keys = [
        key
        for key in (every[0] if every else ())
        if any(one[key] != every[0][key] for one in every)
    ]
    if not keys:
        return []
    body = [[label, *(json.dumps(one[key]) for key in keys)] for label, one in tunings.items()]
    text = "Keys of `tuning` in which the methods differ, defaults of their policies among them:"
    return ["", text, "", *markdown_table(["method", *keys], body)]


def _curve_lines(done: Sequence[Done]) -> list[list[Any]]:
    lines: list[list[Any]] = [["method", "seed", "left out", "round", "quantity", "value"]]
    for ended in done:
        for number, tested in ended.outcome.get("curve", {}).items():
            for test, nodes in tested.items():
                shown = f"{mean(list(nodes.values())):.6f}"
                lines.append([*ended.cell.place, number, f"accuracy {test}", shown])
        for what in ("loss", "consensus"):
            for number, value in enumerate(ended.outcome.get(what, ()), 1):
                lines.append([*ended.cell.place, number, what, f"{value:.6g}"])
    return lines


def _json(experiment: Experiment, done: Sequence[Done], command: str) -> str:
    tree = {
        "command": command,
        "experiment": asdict(experiment),
        "rows": [asdict(row) for row in rows(experiment, done)],
        "differences": [asdict(difference) for difference in differences(experiment, done)],
        "cells": [
            {"file": ended.cell.file, "fault": ended.fault, **ended.outcome} for ended in done
        ],
    }
    return json.dumps(tree, indent=1) + "\n"
