"""`fednode eval`: measure a state directory's tuned prompts on test images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fednode.commands.formats import format_option
from fednode.commands.paths import PATH
from fednode.core.types import Tensors
from fednode.data.base import BUILTIN, NodeData
from fednode.errors import DataError
from fednode.plan import learner_of
from fednode.saved import Tuned, find, recall

NAMED = 5


@click.command()
@click.option("--state", type=PATH, help="State directory, or name of a node [the only one here].")
@click.option("--set", "flags", multiple=True, help="section.key=value, such as data.path=FOLDER.")
@format_option
def eval(state: Path | None, flags: tuple[str, ...], as_json: bool) -> None:
    """Measure a node's tuned prompts and the hand-written prompt on test images."""
    tuned = recall(find(state), flags)
    data = _data(tuned, flags) if tuned.settings.tuning.kind == "torch" else None
    learner = learner_of(tuned.settings, tuned.settings.name or "", None, data)
    tuned.require_model(learner.backbone)
    found = {
        "zero-shot": learner.evaluate(Tensors(), lambda: False),
        "tuned": learner.evaluate(tuned.prompts, lambda: False),
    }
    for note in (*tuned.notes, *learner.notes):
        click.echo(note, err=True)
    sizes = _sizes(data)
    if as_json:
        rows: dict[str, Any] = {row: dict(metrics) for row, metrics in found.items()}
        about = {"data": _place(tuned), "classes": list(learner.classes), "test_images": sizes}
        click.echo(json.dumps({"round": tuned.round, **(about if data else {}), **rows}))
        return
    click.echo(f"Prompts of round {tuned.round} in {tuned.folder}")
    if data is not None:
        classes = data.train.classes
        shown = ", ".join(classes[:NAMED]) + (", ..." if len(classes) > NAMED else "")
        click.echo(f"Test images of {_place(tuned)}, {len(classes)} classes: {shown}")
    sets = list(found["tuned"])
    click.echo(f"{'accuracy, %':14}" + "".join(f"{name:>8}" for name in sets))
    for row, metrics in found.items():
        click.echo(f"{row:14}" + "".join(f"{100 * metrics[name]:8.1f}" for name in sets))
    if sizes:
        click.echo(f"{'test images':14}" + "".join(f"{sizes[name]:8}" for name in sets))


def _data(tuned: Tuned, flags: tuple[str, ...]) -> NodeData:
    """Return the splits to measure on; raise DataError if they are not the prompts' own.

    Splits that --set names may be of any classes.
    """
    from fednode.data.load import load

    settings = tuned.settings.data
    data = load(settings, None if flags else tuned.folder / "images.json")
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


def _sizes(data: NodeData | None) -> dict[str, int]:
    """Return the number of test images of each set that is measured."""
    if data is None:
        return {}
    splits = {"own": data.own, "base": data.base, "new": data.new}
    return {name: len(one.images) for name, one in splits.items() if one and one.images}
