"""`fednode eval`: measure a state directory's tuned prompts on test images, class by class."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fednode import units
from fednode.app import baseline
from fednode.app.baseline import TUNED
from fednode.app.plan import learner_of
from fednode.app.state_dir import Tuned, find, recall
from fednode.core.types import BY_WISH, Tensors
from fednode.data.base import BUILTIN, DataSettings, NodeData, ProgressFn, Split
from fednode.errors import ConfigError, DataError
from fednode.evaluation.gain import ALONE, ZERO_SHOT, gain_over
from fednode.settings.read import Settings
from fednode.terminal import classwise
from fednode.terminal.options import PATH, table_format_option
from fednode.terminal.progress import Shown

if TYPE_CHECKING:
    from fednode.evaluation.results import Evaluation
    from fednode.learn.torch_learner import TorchLearner

NAMED = 5


@click.command()
@click.option("--state", type=PATH, help="State directory, or name of a node [the only one here].")
@click.option("--data", type=PATH, help="A folder of other images: all of them are test images.")
@click.option("--set", "flags", multiple=True, help="section.key=value, such as data.path=FOLDER.")
@table_format_option
def eval(state: Path | None, data: Path | None, flags: tuple[str, ...], form: str) -> None:
    """Say what the mesh brings: measure a node's prompts and the control on its test images.

    The control is trained on this node's images alone, once, with as many rounds as the node has
    run; this takes about as long as the node's own training. It is kept in the state directory.

    --data measures the node's prompts on all images of a folder that was never trained on. If the
    node has all classes of the folder, it chooses among its own classes.

    Beside the accuracy there are sensitivity, specificity, AUC and a confusion matrix, each class
    against the rest (docs/evaluation.md).
    """
    tuned = recall(find(state), flags)
    own = recall(tuned.folder).settings if flags else tuned.settings
    if tuned.settings.tuning.kind != "torch":
        raise ConfigError(
            f"{tuned.folder} was tuned with tuning.kind '{tuned.settings.tuning.kind}', which "
            "knows no images: there is nothing to measure."
        )
    if data is not None:
        tuned = _on_folder(tuned, data, flags)
    kept = "Nothing is measured. Images that were encoded are kept for the next time."
    with Shown(kept) as progress:
        images = _images(tuned, flags, progress, whole=data is not None)
        measured = _measure(tuned, own, images, progress)
    if data is not None and not measured.answers:
        prompts = f"the prompts of round {tuned.round} ({tuned.settings.policy.name}) answer"
        measured = replace(measured, answers=prompts)
    classifier = [f"own classes: {measured.answers}"] if measured.answers else []
    if own == tuned.settings:
        sentences = [*measured.gains, *measured.hints, *classifier]
        baseline.keep_comparison(tuned.folder, sentences, _gain_counts(measured))
    for text in measured.notes:
        click.echo(text, err=True)
    if form == "csv":
        click.echo(classwise.csv(measured.results), nl=False)
    elif form == "json":
        click.echo(json.dumps(_tree(tuned, images, measured)))
    else:
        click.echo(
            "\n".join(_lines(tuned, images.train.classes, measured, others=data is not None))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured, by the row of the table and the test set.

    gains: sentences on what the mesh brings. hints: what to do. answers: which classifier answers;
    "" if it is not known. notes: for the error stream.
    """

    results: Mapping[str, Mapping[str, Evaluation]]
    gains: Sequence[str] = ()
    hints: Sequence[str] = ()
    answers: str = ""
    notes: Sequence[str] = ()


def _measure(tuned: Tuned, own: Settings, images: NodeData, progress: ProgressFn) -> Measured:
    """Return the figures of the node's prompts, of the control and of the hand-written prompt.

    own: the settings of the state directory, without those of --set and --data.
    """
    learner = learner_of(tuned.settings, tuned.settings.name or "", images, progress)
    from fednode.learn.torch_learner import TorchLearner  # loaded now, if it is needed

    tuned.require_model(learner.backbone)
    assert isinstance(learner, TorchLearner), "there are images"
    control = baseline.control_of(tuned, own, learner, progress)
    folds = learner.module.closed_form and own == tuned.settings and tuned.rounds > 0
    results = {ZERO_SHOT: _results(ZERO_SHOT, learner, Tensors(), folds)}
    if control is not None and control.prompts:
        results[ALONE] = _results(ALONE, control.learner, control.prompts, folds)
    results[TUNED] = _results(TUNED, learner, tuned.prompts, folds)
    gains, hints = baseline.compare(tuned, results, "" if control is None else control.unknown)
    trained = [control.note] if control is not None and control.note else []
    warnings = [f"warning: {text}" for text in learner.warnings]
    return Measured(
        results=results,
        gains=gains,
        hints=hints,
        answers=learner.describe_classifier(tuned.prompts),
        notes=[*tuned.notes, *learner.notes, *trained, *hints, *warnings],
    )


def _results(
    row: str, learner: TorchLearner, prompts: Tensors, folds: bool
) -> Mapping[str, Evaluation]:
    """Return results by test set. folds: those of own classes are of all images, each left out."""
    found = dict(learner.results(prompts))
    crossed = learner.cross_validate(prompts, row) if folds else None
    return found | ({"own": crossed} if crossed is not None else {})


def _gain_counts(measured: Measured) -> Sequence[int]:
    """Return the counts of the gain on own test images, if the control was measured on them."""
    ours, alone = (measured.results.get(row, {}).get("own") for row in (TUNED, ALONE))
    return gain_over(ours, alone).counts if ours and alone else ()


def _tree(tuned: Tuned, data: NodeData, measured: Measured) -> dict[str, Any]:
    rounds, merged = tuned.merge_counts
    sets = measured.results[TUNED]
    tree: dict[str, Any] = {
        "round": tuned.round,
        "rounds_run": rounds,
        "rounds_merged": merged,
        "data": _place(tuned),
        "classes": list(data.train.classes),
        "test_images": {name: evaluation.images for name, evaluation in sets.items()},
        "by_class": classwise.tree(measured.results),
        "compared": list(measured.gains),
    }
    for row, of_row in measured.results.items():
        tree[row] = {name: evaluation.accuracy for name, evaluation in of_row.items()}
    if ALONE in measured.results:
        tree["gain"] = {
            name: gain_over(ours, measured.results[ALONE][name]).as_json()
            for name, ours in sets.items()
        }
    return tree | ({"answers": measured.answers} if measured.answers else {})


def _lines(tuned: Tuned, classes: Sequence[str], measured: Measured, others: bool) -> list[str]:
    """Return the lines of the text. classes: of the images; others: they are those of --data."""
    lines = [f"Round {tuned.round} in {tuned.folder}"]
    together = tuned.merge_counts.sentence(tuned.settings.policy.name == BY_WISH)
    lines += [f"{together}."] if together else []
    sets = measured.results[TUNED]
    kind = "images" if any(evaluation.folds for evaluation in sets.values()) else "test images"
    names = units.listed(classes, NAMED)
    lines.append(f"{kind.capitalize()} of {_place(tuned)}, {len(classes)} classes: {names}")
    lines.append(_line("accuracy, %", sets))
    lines += [
        _line(row, [f"{100 * evaluation.accuracy:.1f}" for evaluation in of_row.values()])
        for row, of_row in measured.results.items()
    ]
    lines.append(_line(kind, [evaluation.images for evaluation in sets.values()]))
    patients = [evaluation.patient_count for evaluation in sets.values()]
    if any(patients):
        lines.append(_line("patients", [count or "-" for count in patients]))
    spans = [classwise.span(evaluation.interval) for evaluation in sets.values()]
    lines.append(_line("tuned, 95 %", spans))
    if measured.answers:
        lines.append(f"{'these' if others else 'own'} classes: {measured.answers}")
    lines += measured.gains
    for name, evaluation in sets.items():
        rest = {row: sets[name] for row, sets in measured.results.items() if row != TUNED}
        lines += ["", *classwise.text(name, evaluation, rest)]
    return lines


def _line(name: str, cells: Iterable[object]) -> str:
    return f"{name:14}" + "".join(f"{cell!s:>8}" for cell in cells)


def _on_folder(tuned: Tuned, folder: Path, flags: Sequence[str]) -> Tuned:
    """Return what was tuned, with the settings that read all images of another folder.

    Of the node's own data settings only the window stays: it says how the model sees an image. All
    others belong to the node's folder, unless --set gives them.
    """
    settings = tuned.settings
    written = {flag.partition("=")[0] for flag in flags}
    kept = {
        key: getattr(settings.data, key)
        for key in ("table", "columns", "classes", "rename", "groups", "window")
        if key == "window" or f"data.{key}" in written
    }
    other = DataSettings(path=str(folder), **kept)
    return replace(tuned, settings=replace(settings, data=other.placed()))


def _images(tuned: Tuned, flags: tuple[str, ...], progress: ProgressFn, whole: bool) -> NodeData:
    """Return the splits to measure on; raise DataError if they are not the prompts' own.

    Splits that --set names may be of any classes.
    """
    from fednode.data.load import load
    from fednode.learn.cache import cache_of

    settings = tuned.settings.data
    data = load(settings, cache_of(tuned.settings.cache), progress, whole=whole)
    if whole:
        return _among(tuned, data)
    chosen = any(flag.startswith("data.path=") for flag in flags)
    if settings.path == BUILTIN and not chosen and data.train.classes != tuned.classes:
        names = units.listed(tuned.classes, NAMED)
        raise DataError(
            f"{tuned.folder} holds prompts for {len(tuned.classes)} classes ({names}), and its "
            "settings name no folder of such images: give one with --set data.path=FOLDER."
        )
    return data


def _among(tuned: Tuned, data: NodeData) -> NodeData:
    """Return images whose labels index the node's classes if it has all of theirs.

    Raise DataError if there is nothing to choose among.
    """
    names = data.own.classes
    if set(names) <= set(tuned.classes):
        place = [tuned.classes.index(name) for name in names]
        images = tuple(replace(image, label=place[image.label]) for image in data.own.images)
        classes = tuned.classes
        return replace(data, train=Split(classes, ()), own=Split(classes, images))
    if len(names) < 2:
        raise DataError(
            f"{tuned.settings.data.path} has one class, '{names[0]}', and the node has no class of "
            "this name: give data.rename the node's name of it, or a folder of two classes."
        )
    return data


def _place(tuned: Tuned) -> str:
    path = tuned.settings.data.path
    return "the built-in images" if path == BUILTIN else path
