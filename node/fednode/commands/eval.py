"""`fednode eval`: measure a state directory's tuned prompts on test images, class by class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fednode.app.plan import learner_of
from fednode.app.saved import Tuned, find, recall
from fednode.core.types import Tensors
from fednode.data.base import BUILTIN, NodeData
from fednode.errors import ConfigError, DataError
from fednode.learn.learner import Learner
from fednode.terminal import classwise
from fednode.terminal.formats import table_format_option
from fednode.terminal.paths import PATH

if TYPE_CHECKING:
    from fednode.learn.evaluation import Evaluation

NAMED = 5


@click.command()
@click.option("--state", type=PATH, help="State directory, or name of a node [the only one here].")
@click.option("--set", "flags", multiple=True, help="section.key=value, such as data.path=FOLDER.")
@table_format_option
def eval(state: Path | None, flags: tuple[str, ...], form: str) -> None:
    """Measure a node's tuned prompts and the hand-written prompt on test images.

    Beside the accuracy there are sensitivity, specificity, AUC and a confusion matrix, each class
    against the rest (docs/evaluation.md).
    """
    tuned = recall(find(state), flags)
    data = _data(tuned, flags) if tuned.settings.tuning.kind == "torch" else None
    if data is None and form == "csv":
        raise ConfigError(
            f"{tuned.folder} was tuned with tuning.kind 'closed-form', which knows no images, so "
            "there is no table of classes: use --format text or json."
        )
    learner = learner_of(tuned.settings, tuned.settings.name or "", data)
    tuned.require_model(learner.backbone)
    prompts = {"zero-shot": Tensors(), "tuned": tuned.prompts}
    results = {row: _results(learner, one) for row, one in prompts.items()}
    found = {
        row: {name: one.accuracy for name, one in results[row].items()}
        or learner.evaluate(one, lambda: False)
        for row, one in prompts.items()
    }
    for note in (*tuned.notes, *learner.notes):
        click.echo(note, err=True)
    if form == "csv":
        click.echo(classwise.csv(results), nl=False)
    elif form == "json":
        click.echo(json.dumps(_tree(tuned, data, found, results)))
    else:
        click.echo("\n".join(_lines(tuned, data, found, results)))


def _results(learner: Learner, prompts: Tensors) -> Mapping[str, Evaluation]:
    """Return the results by class on each test set; nothing from a learner without images."""
    from fednode.learn.torch_learner import TorchLearner

    return learner.results(prompts) if isinstance(learner, TorchLearner) else {}


def _tree(
    tuned: Tuned,
    data: NodeData | None,
    found: Mapping[str, Mapping[str, float]],
    results: Mapping[str, Mapping[str, Evaluation]],
) -> dict[str, Any]:
    """Return everything as JSON types."""
    tree: dict[str, Any] = {"round": tuned.round}
    if data is not None:
        sizes = {name: one.images for name, one in results["tuned"].items()}
        tree |= {"data": _place(tuned), "classes": list(data.train.classes), "test_images": sizes}
        tree["by_class"] = classwise.tree(results)
    return tree | {row: dict(metrics) for row, metrics in found.items()}


def _lines(
    tuned: Tuned,
    data: NodeData | None,
    found: Mapping[str, Mapping[str, float]],
    results: Mapping[str, Mapping[str, Evaluation]],
) -> list[str]:
    """Return everything for people."""
    lines = [f"Prompts of round {tuned.round} in {tuned.folder}"]
    if data is not None:
        classes = data.train.classes
        shown = ", ".join(classes[:NAMED]) + (", ..." if len(classes) > NAMED else "")
        lines.append(f"Test images of {_place(tuned)}, {len(classes)} classes: {shown}")
    sets = list(found["tuned"])
    lines.append(f"{'accuracy, %':14}" + "".join(f"{name:>8}" for name in sets))
    for row, metrics in found.items():
        lines.append(f"{row:14}" + "".join(f"{100 * metrics[name]:8.1f}" for name in sets))
    if results["tuned"]:
        sizes = "".join(f"{one.images:8}" for one in results["tuned"].values())
        lines.append(f"{'test images':14}{sizes}")
    for name, one in results["tuned"].items():
        lines += ["", *classwise.text(name, one)]
    return lines


def _data(tuned: Tuned, flags: tuple[str, ...]) -> NodeData:
    """Return the splits to measure on; raise DataError if they are not the prompts' own.

    Splits that --set names may be of any classes.
    """
    from fednode.data.load import load
    from fednode.learn.cache import cache_of

    settings = tuned.settings.data
    data = load(settings, cache_of(tuned.settings.cache))
    chosen = any(flag.startswith("data.path=") for flag in flags)
    if settings.path == BUILTIN and not chosen and data.train.classes != tuned.classes:
        shown = ", ".join(tuned.classes[:NAMED]) + (", ..." if len(tuned.classes) > NAMED else "")
        raise DataError(
            f"{tuned.folder} holds prompts for {len(tuned.classes)} classes ({shown}), and its "
            "settings name no folder of such images: give one with --set data.path=FOLDER."
        )
    return data


def _place(tuned: Tuned) -> str:
    path = tuned.settings.data.path
    return "the built-in images" if path == BUILTIN else path
