"""Write an experiment down: report.md, scores.csv, curves.csv, report.json, and curves.png."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from fednode.core import foreign
from fednode.experiment import scores
from fednode.experiment.figures import markdown_table, mean
from fednode.experiment.leak import ATTACKS, FALSE_ALARMS
from fednode.experiment.run import ELSEWHERE, Done
from fednode.experiment.settings import Experiment
from fednode.experiment.table import Row, rows, shown_columns
from fednode.learn.private import epsilon
from fednode.learn.settings import PrivacySettings
from fednode.storage.files import put

MIB: Final = 2**20


def write(experiment: Experiment, done: Sequence[Done], folder: Path, command: str) -> Path:
    """Write all files; return the path of report.md. Raise StateError where it cannot."""
    table = rows(experiment, done)
    files = {
        "report.md": markdown(experiment, table, done, command),
        "scores.csv": csv_of(scores.lines(done)),
        "curves.csv": csv_of(_curve_lines(done)),
        "report.json": _json(experiment, table, done, command),
    }
    for name, text in files.items():
        put(folder / name, text, ELSEWHERE)
    return folder / "report.md"


def markdown(
    experiment: Experiment, table: Sequence[Row], done: Sequence[Done], command: str
) -> str:
    """Return the report for people."""
    first = next((one.outcome for one in done if one.outcome), {})
    data, protocol = experiment.data, experiment.protocol
    seeds = ", ".join(map(str, experiment.seeds))
    lines = [
        f"# {foreign.markdown(experiment.title)}",
        "",
        f"`{command}`",
        "",
        f"{protocol.kind}, {data.shots or 'all'} shots, {first.get('backbone', 'no model')}, "
        f"seeds {seeds}. Accuracy in percent, mean ± standard deviation over seeds.",
        "",
        *_accuracy_lines(experiment, table),
        "",
        *_spread_lines(experiment, table),
        *_traffic_lines(table),
        *_privacy_lines(table),
        *_leak_lines(experiment, table),
    ]
    faults = [f"- {one.cell.title}: {foreign.markdown(one.fault)}" for one in done if one.fault]
    if faults:
        lines += ["", "## Cells that failed", "", *faults]
    return "\n".join(lines) + "\n"


def _accuracy_lines(experiment: Experiment, table: Sequence[Row]) -> list[str]:
    names = shown_columns(experiment)
    papers = [name for name in names if any(name in row.method.paper for row in table)]
    head = ["method", *names, *(f"paper: {name}" for name in papers)]
    body = []
    for row in table:
        cells = [row.method.label, *(str(row.figures.get(name, "-")) for name in names)]
        said = [row.method.paper.get(name) for name in papers]
        cells += ["-" if one is None else f"{one:g}" for one in said]
        body.append(cells)
    return markdown_table(head, body)


def _spread_lines(experiment: Experiment, table: Sequence[Row]) -> list[str]:
    """Say how much nodes differ, where they do."""
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
            body.append(
                [row.method.label, *("-" if one is None else f"{one:.2f}" for one in spreads)]
            )
    return ["Standard deviation over nodes, mean over seeds:", "",
            *markdown_table(["method", *names], body), ""]  # fmt: skip


def _traffic_lines(table: Sequence[Row]) -> list[str]:
    head = [
        *("method", "messages", "payload MiB", "serialized MiB", "wire MiB (estimate)"),
        *("as its paper counts, MiB", "consensus distance", "seconds", "warnings"),
    ]
    body = []
    for row in table:
        sent = row.traffic
        if sent is None:
            body.append([row.method.label, *["-"] * 6, f"{row.seconds:.0f}", str(row.warnings)])
            continue
        sizes = (sent.payload, sent.serialized, sent.wire)
        body.append(
            [
                row.method.label,
                f"{sent.messages:.0f}",
                *(f"{one / MIB:.2f}" for one in sizes),
                "-" if sent.paper is None else f"{sent.paper / MIB:.2f}",
                "-" if row.consensus is None else f"{row.consensus:.3g}",
                f"{row.seconds:.0f}",
                str(row.warnings),
            ]
        )
    text = (
        "Bytes of all nodes in one run, answers and probes left out; seconds of all runs together:"
    )
    return [text, "", *markdown_table(head, body)]


def _privacy_lines(table: Sequence[Row]) -> list[str]:
    """Say what each method spent, as epsilon, where one clips and blurs."""
    body = []
    for row in table:
        kept = PrivacySettings(**row.method.privacy)
        if kept.clip is None or row.traffic is None:
            continue
        spent = epsilon(kept.noise, row.traffic.rounds, kept.delta)
        body.append(
            [
                row.method.label,
                f"{kept.clip:g}",
                f"{kept.noise:g}",
                f"{spent:.3g}",
                f"{kept.delta:g}",
            ]
        )
    if not body:
        return []
    text = (
        "Clipping and noise: epsilon of one node's whole data set, per message, over all rounds "
        "(node/learn/private.py); no guarantee for single images, and drawn from the seed here:"
    )
    return ["", text, "", *markdown_table(["method", "clip", "noise", "epsilon", "delta"], body)]


def _leak_lines(experiment: Experiment, table: Sequence[Row]) -> list[str]:
    if not experiment.leak:
        return []
    names = [f"{attack}_{what}" for attack in ATTACKS for what in ("auc", "found")]
    body = [[row.method.label, *(str(row.leak.get(name, "-")) for name in names)] for row in table]
    text = (
        "Membership inference by a member that hears everything (node/experiment/leak.py), in "
        "percent: AUC, of which 50 is chance, and the share of training images found where "
        f"{FALSE_ALARMS:.0%} of others are taken for some:"
    )
    head = [name.replace("_auc", ": AUC").replace("_found", ": found") for name in names]
    return ["", text, "", *markdown_table(["method", *head], body)]


def _curve_lines(done: Sequence[Done]) -> list[list[Any]]:
    lines: list[list[Any]] = [["method", "seed", "left out", "round", "quantity", "value"]]
    for one in done:
        for number, tested in one.outcome.get("curve", {}).items():
            for test, nodes in tested.items():
                shown = f"{mean(list(nodes.values())):.6f}"
                lines.append([*_place(one), number, f"accuracy {test}", shown])
        for what in ("loss", "consensus"):
            for number, value in enumerate(one.outcome.get(what, ()), 1):
                lines.append([*_place(one), number, what, f"{value:.6g}"])
    return lines


def _place(one: Done) -> list[Any]:
    return [one.cell.method.label, one.cell.seed, one.cell.target]


def csv_of(lines: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV; texts cannot be taken for formulas by a spreadsheet."""
    text = io.StringIO()
    safe = (
        [foreign.cell(one) if isinstance(one, str) else one for one in cells] for cells in lines
    )
    csv.writer(text, lineterminator="\n").writerows(safe)
    return text.getvalue()


def _json(experiment: Experiment, table: Sequence[Row], done: Sequence[Done], command: str) -> str:
    tree = {
        "command": command,
        "experiment": asdict(experiment),
        "rows": [asdict(row) for row in table],
        "cells": [{"file": one.cell.file, "fault": one.fault, **one.outcome} for one in done],
    }
    return json.dumps(tree, indent=1) + "\n"
