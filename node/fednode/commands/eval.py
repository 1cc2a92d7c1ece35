"""`fednode eval`: measure a state directory's tuned prompts on test images, class by class."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fednode.app import baseline
from fednode.app.baseline import TUNED
from fednode.app.plan import learner_of
from fednode.app.state_dir import Tuned, find, recall
from fednode.core import company
from fednode.core.types import Tensors
from fednode.data.base import BUILTIN, DataSettings, NodeData, ProgressFn, Split
from fednode.errors import ConfigError, DataError
from fednode.learn.evaluation import ALONE, ZERO_SHOT
from fednode.learn.learner import Learner
from fednode.terminal import classwise
from fednode.terminal.formats import table_format_option
from fednode.terminal.paths import PATH
from fednode.terminal.progress import Shown

if TYPE_CHECKING:
    from fednode.learn.evaluation import Evaluation

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
    if data is not None:
        tuned = _on_folder(tuned, data, flags)
    if tuned.settings.tuning.kind != "torch" and form == "csv":
        raise ConfigError(
            f"{tuned.folder} was tuned with tuning.kind 'closed-form', which knows no images, so "
            "there is no table of classes: use --format text or json."
        )
    with Shown(
        "Nothing is measured. Images that were encoded are kept for the next time."
    ) as progress:
        images = None
        if tuned.settings.tuning.kind == "torch":
            images = _images(tuned, flags, progress, whole=data is not None)
        learner = learner_of(tuned.settings, tuned.settings.name or "", images, progress)
        from fednode.learn.torch_learner import TorchLearner  # loaded now, if it is needed

        tuned.require_model(learner.backbone)
        rows: dict[str, tuple[Learner, Tensors]] = {ZERO_SHOT: (learner, Tensors())}
        control = None
        if isinstance(learner, TorchLearner):
            control = baseline.control_of(tuned, own, learner, progress)
        if control is not None and control.prompts:
            rows[ALONE] = control.learner, control.prompts
        rows[TUNED] = learner, tuned.prompts
        results: dict[str, Mapping[str, Evaluation]] = {
            row: measuring.results(prompts) if isinstance(measuring, TorchLearner) else {}
            for row, (measuring, prompts) in rows.items()
        }
        metrics_of = {
            row: {name: evaluation.accuracy for name, evaluation in results[row].items()}
            or measuring.evaluate(prompts, lambda: False)
            for row, (measuring, prompts) in rows.items()
        }
    gains, hints = list[str](), list[str]()
    if images is not None:
        unknown = "" if control is None else control.unknown
        gains, hints = baseline.compare(tuned, results, unknown)
        if own == tuned.settings:
            baseline.keep_sentences(tuned.folder, [*gains, *hints])
    answers = ""
    if isinstance(learner, TorchLearner):
        answers = learner.describe_classifier(tuned.prompts)
        if data is not None and not answers:
            answers = f"the prompts of round {tuned.round} ({tuned.settings.policy.name}) answer"
    trained = [control.note] if control is not None and control.note else []
    for note in (*tuned.notes, *learner.notes, *trained, *hints):
        click.echo(note, err=True)
    for warning in learner.warnings:
        click.echo(f"warning: {warning}", err=True)
    if form == "csv":
        click.echo(classwise.csv(results), nl=False)
    elif form == "json":
        tree = _tree(tuned, images, metrics_of, results) | {"compared": gains}
        click.echo(json.dumps(tree | ({"answers": answers} if answers else {})))
    else:
        shown = [f"{'these' if data else 'own'} classes: {answers}"] if answers else []
        click.echo("\n".join(_lines(tuned, images, metrics_of, results, [*shown, *gains])))


def _tree(
    tuned: Tuned,
    data: NodeData | None,
    accuracies: Mapping[str, Mapping[str, float]],
    results: Mapping[str, Mapping[str, Evaluation]],
) -> dict[str, Any]:
    rounds, merged = tuned.merge_counts
    tree: dict[str, Any] = {"round": tuned.round, "rounds_run": rounds, "rounds_merged": merged}
    if data is not None:
        sizes = {name: evaluation.images for name, evaluation in results["tuned"].items()}
        tree |= {"data": _place(tuned), "classes": list(data.train.classes), "test_images": sizes}
        tree["by_class"] = classwise.tree(results)
    return tree | {row: dict(metrics) for row, metrics in accuracies.items()}


def _lines(
    tuned: Tuned,
    data: NodeData | None,
    accuracies: Mapping[str, Mapping[str, float]],
    results: Mapping[str, Mapping[str, Evaluation]],
    gains: Sequence[str],
) -> list[str]:
    lines = [f"Round {tuned.round} in {tuned.folder}"]
    together = company.sentence(tuned.merge_counts, tuned.settings.policy.name == company.BY_WISH)
    lines += [f"{together}."] if together else []
    if data is not None:
        classes = data.train.classes
        shown = ", ".join(classes[:NAMED]) + (", ..." if len(classes) > NAMED else "")
        lines.append(f"Test images of {_place(tuned)}, {len(classes)} classes: {shown}")
    sets = list(accuracies["tuned"])
    lines.append(f"{'accuracy, %':14}" + "".join(f"{name:>8}" for name in sets))
    for row, metrics in accuracies.items():
        lines.append(f"{row:14}" + "".join(f"{100 * metrics[name]:8.1f}" for name in sets))
    if results["tuned"]:
        sizes = "".join(f"{evaluation.images:8}" for evaluation in results["tuned"].values())
        lines.append(f"{'test images':14}{sizes}")
        patients = [evaluation.patient_count for evaluation in results["tuned"].values()]
        if any(patients):
            lines.append(f"{'patients':14}" + "".join(f"{count or '-':>8}" for count in patients))
        spans = "".join(
            f"{classwise.span(evaluation.interval):>8}" for evaluation in results["tuned"].values()
        )
        lines += [f"{'tuned, 95 %':14}{spans}", *gains]
    for name, evaluation in results["tuned"].items():
        others = {row: sets[name] for row, sets in results.items() if row != "tuned"}
        lines += ["", *classwise.text(name, evaluation, others)]
    return lines


def _on_folder(tuned: Tuned, folder: Path, flags: Sequence[str]) -> Tuned:
    """Return what was tuned, with the settings that read all images of another folder."""
    settings = tuned.settings
    if settings.tuning.kind != "torch":
        raise ConfigError(
            f"{tuned.folder} was tuned with tuning.kind {settings.tuning.kind!r}, which knows no "
            "images: leave --data out."
        )
    written = {flag.partition("=")[0] for flag in flags}
    plain = DataSettings()
    kept = {
        key: getattr(settings.data if f"data.{key}" in written else plain, key)
        for key in ("table", "columns", "classes", "rename")
    }
    other = DataSettings(
        path=str(folder), groups=settings.data.groups, window=settings.data.window, **kept
    )
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
        shown = ", ".join(tuned.classes[:NAMED]) + (", ..." if len(tuned.classes) > NAMED else "")
        raise DataError(
            f"{tuned.folder} holds prompts for {len(tuned.classes)} classes ({shown}), and its "
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
