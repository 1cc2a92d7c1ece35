"""`fednode predict IMAGE...`: class names and probabilities from a node's tuned prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click
import numpy as np

from fednode.api import Prompts, load
from fednode.app.image_files import image_files
from fednode.app.state_dir import find
from fednode.core.types import Array
from fednode.data.images import Verdict, examine
from fednode.errors import ConfigError, DataError
from fednode.terminal.options import PATH, format_option
from fednode.terminal.progress import Shown

AT_ONCE: Final = 64
"""Images that are classified before their lines are printed."""


@click.command()
@click.argument("images", nargs=-1, required=True, type=PATH)
@click.option("--state", type=PATH, help="State directory, or name of a node [the only one here].")
@click.option("--classes", help="Class names to choose among, a,b,c [the node's own].")
@click.option("--all-classes", is_flag=True, help="Choose among the classes of all nodes (gda).")
@click.option(
    "--top", type=click.IntRange(1), default=3, show_default=True, help="Class names of an image."
)
@format_option
def predict(
    images: tuple[Path, ...],
    state: Path | None,
    classes: str | None,
    all_classes: bool,
    top: int,
    as_json: bool,
) -> int:
    """Classify IMAGES with the tuned prompts of a state directory.

    A folder stands for all images in it, at any depth; - reads paths from standard input, one per
    line. The exit code is 3 if some images cannot be read; the others are classified all the same.
    """
    images = tuple(image_files(images, there=False))
    if not images:
        raise DataError("There is no image in what was given.")
    with Shown("No image is classified.") as progress:
        progress("loading the model", 0, 0)
        prompts = load(find(state))
        held = prompts.known if all_classes else prompts.classes
        names = tuple(name.strip() for name in classes.split(",")) if classes else held
        if not all(names):
            raise ConfigError("--classes holds an empty name.")
        with progress.hidden():
            more = "" if classes else prompts.left_out(names)
            for note in (*prompts.notes, *filter(None, [prompts.answers(names), more])):
                click.echo(f"note: {note}", err=True)
        faulty = 0
        for at in range(0, len(images), AT_ONCE):
            progress("classifying images", at, len(images))
            some = images[at : at + AT_ONCE]
            verdicts = examine(some, prompts.settings.data.window)
            predicted = _classified(prompts, some, verdicts, names)
            with progress.hidden():
                for image, row in predicted:
                    _show(image, row, verdicts[image], names, top, as_json)
                    faulty += row is None
            done = min(at + AT_ONCE, len(images))
            progress.kept = f"{done:,} of {len(images):,} images are classified and printed."
    return DataError.exit_code if faulty else 0


def _classified(
    prompts: Prompts,
    images: tuple[Path, ...],
    verdicts: dict[Path, Verdict],
    names: tuple[str, ...],
) -> list[tuple[Path, Array | None]]:
    """Return each image with its probabilities; None if it cannot be read."""
    good = [image for image in images if verdicts[image].fault is None]
    rows = iter(prompts.probabilities(good, names) if good else ())
    return [(image, next(rows) if verdicts[image].fault is None else None) for image in images]


def _show(
    image: Path,
    row: Array | None,
    verdict: Verdict,
    names: tuple[str, ...],
    top: int,
    as_json: bool,
) -> None:
    if row is None:
        if as_json:
            click.echo(json.dumps({"image": str(image), "fault": verdict.fault}))
        else:
            click.echo(f"fednode: '{image}' is skipped: {verdict.fault}.", err=True)
        return
    order = np.lexsort((np.arange(len(names)), -row))[:top]
    shares = {names[at]: round(float(row[at]), 6) for at in order}
    if as_json:
        click.echo(json.dumps({"image": str(image), "classes": shares}))
    else:
        shown = ", ".join(f"{name} {100 * value:.1f} %" for name, value in shares.items())
        click.echo(f"{image}: {shown}")
    if verdict.constant:
        text = "has one colour throughout: the model sees nothing in it"
        click.echo(f"fednode: '{image}' {text}.", err=True)
