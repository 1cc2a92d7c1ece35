"""Write an experiment down: report.md, report.json, CSV files, and classes.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from fednode.core import foreign
from fednode.lab.experiment import classes, paired
from fednode.lab.experiment.cells import ELSEWHERE, Done, score_lines
from fednode.lab.experiment.figures import markdown_table, mean
from fednode.lab.experiment.settings import Experiment
from fednode.lab.experiment.table import MethodRow, rows, shown_columns, test_images
from fednode.learn.privacy import epsilon
from fednode.learn.settings import PrivacySettings
from fednode.storage.files import put
from fednode.terminal.formats import csv_table

MIB: Final = 2**20
ABOUT: Final = ("method", "seeds", "rounds")
"""The first columns of every table."""


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
    table, by_class = rows(experiment, done), classes.results(done)
    files = {
        "report.md": markdown(experiment, table, done, command, notes),
        "scores.csv": csv_table(score_lines(done)),
        "curves.csv": csv_table(_curve_lines(done)),
        "report.json": _json(experiment, table, done, command),
    }
    if by_class:
        files["classes.md"] = classes.markdown(experiment, table, by_class)
        files["classes.csv"] = csv_table(classes.class_lines(by_class))
        files["confusion.csv"] = csv_table(classes.confusion_lines(by_class))
    for name, text in files.items():
        put(folder / name, text, ELSEWHERE, for_all=True)
    return folder / "report.md"


def markdown(
    experiment: Experiment,
    table: Sequence[MethodRow],
    done: Sequence[Done],
    command: str,
    notes: Sequence[str] = (),
) -> str:
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
        *paired.lines(experiment, done),
        *_class_lines(done),
        *_spread_lines(experiment, table),
        *_traffic_lines(table),
        *_privacy_lines(table),
    ]
    faults = [
        f"- {ended.cell.title}: {foreign.markdown(ended.fault)}" for ended in done if ended.fault
    ]
    if faults:
        lines += ["", "## Cells that failed", "", *faults]
    if notes:
        lines += ["", *(f"- {foreign.markdown(note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def _class_lines(done: Sequence[Done]) -> list[str]:
    if not any(ended.outcome.get("by_class") for ended in done):
        return []
    files = "classes.md, classes.csv and confusion.csv"
    return [f"Sensitivity, specificity, AUC and confusions by class: {files}.", ""]


def _accuracy_lines(
    experiment: Experiment, table: Sequence[MethodRow], done: Sequence[Done]
) -> list[str]:
    names = shown_columns(experiment)
    papers = [name for name in names if any(name in row.method.paper for row in table)]
    head = [*ABOUT, *names, *(f"paper: {name}" for name in papers)]
    body = []
    for row in table:
        cells = [*_about(row), *(str(row.figures.get(name, "-")) for name in names)]
        said = [row.method.paper.get(name) for name in papers]
        cells += ["-" if figure is None else f"{figure:g}" for figure in said]
        body.append(cells)
    sizes = test_images(experiment, done)
    counted = [f"{sizes[name]:.0f}" if name in sizes else "-" for name in names]
    if sizes:
        body.append(["test images", "", "", *counted, *([""] * len(papers))])
    return markdown_table(head, body)


def _about(row: MethodRow) -> list[str]:
    return [row.method.label, row.seeds_said, row.rounds_said]


def _spread_lines(experiment: Experiment, table: Sequence[MethodRow]) -> list[str]:
    names = [
        name
        for name in shown_columns(experiment)
        if any(row.figures[name].over_nodes for row in table if name in row.figures)
    ]
    if not names:
        return []
    body = []
    for row in table:
        spreads = [row.figures[name].over_nodes if name in row.figures else None for name in names]
        if any(spreads):
            cells = ["-" if spread is None else f"{spread:.2f}" for spread in spreads]
            body.append([*_about(row), *cells])
    many = "" if len(experiment.seeds) == 1 else ", mean over seeds"
    return [f"Standard deviation over nodes{many}:", "",
            *markdown_table([*ABOUT, *names], body), ""]  # fmt: skip


def _traffic_lines(table: Sequence[MethodRow]) -> list[str]:
    head = [
        *(*ABOUT, "messages", "payload MiB", "serialized MiB", "wire MiB (estimate)"),
        *("as its paper counts, MiB", "consensus distance", "seconds", "warnings"),
    ]
    body = []
    for row in table:
        sent = row.traffic
        if sent is None:
            body.append([*_about(row), *["-"] * 6, f"{row.seconds:.0f}", str(row.warnings)])
            continue
        sizes = (sent.payload, sent.serialized, sent.wire)
        cells = [f"{sent.messages:.0f}", *(f"{size / MIB:.2f}" for size in sizes)]
        cells.append("-" if sent.paper is None else f"{sent.paper / MIB:.2f}")
        cells.append("-" if row.consensus is None else f"{row.consensus:.3g}")
        body.append([*_about(row), *cells, f"{row.seconds:.0f}", str(row.warnings)])
    text = (
        "Bytes of all nodes in one run, answers and probes left out; seconds of all runs together:"
    )
    return [text, "", *markdown_table(head, body)]


def _privacy_lines(table: Sequence[MethodRow]) -> list[str]:
    """Say what each method spent, as epsilon, where one clips and blurs."""
    body = []
    for row in table:
        kept = PrivacySettings(**row.method.privacy)
        if kept.clip is None or row.traffic is None:
            continue
        spent = epsilon([(kept.noise, row.traffic.rounds)], kept.delta)
        cells = [f"{kept.clip:g}", f"{kept.noise:g}", f"{spent:.3g}", f"{kept.delta:g}"]
        body.append([*_about(row), *cells])
    if not body:
        return []
    text = (
        "Clipping and noise: epsilon of one node's whole data set, per message, over all rounds "
        "(node/fednode/learn/privacy.py); no guarantee for single images, and drawn from the seed "
        "here:"
    )
    return ["", text, "", *markdown_table([*ABOUT, "clip", "noise", "epsilon", "delta"], body)]


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


def _json(
    experiment: Experiment, table: Sequence[MethodRow], done: Sequence[Done], command: str
) -> str:
    tree = {
        "command": command,
        "experiment": asdict(experiment),
        "rows": [asdict(row) for row in table],
        "differences": [asdict(difference) for difference in paired.differences(experiment, done)],
        "cells": [
            {"file": ended.cell.file, "fault": ended.fault, **ended.outcome} for ended in done
        ],
    }
    return json.dumps(tree, indent=1) + "\n"
