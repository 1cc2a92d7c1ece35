"""`fednode explain words|maps`: words near prompts, and parts of images that they need."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.text import Text

from fednode.api import load
from fednode.app.image_files import image_files
from fednode.app.state_dir import find
from fednode.core import foreign
from fednode.core.types import Array
from fednode.data.decode import decode
from fednode.data.pixels import Window
from fednode.errors import ConfigError, DataError, StateError
from fednode.lab.experiment.picture import new_figure
from fednode.terminal.options import PATH, format_option
from fednode.terminal.progress import Shown
from fednode.terminal.show import grid

IMAGES_MAX = 12
SIZE_IN = 2.2
SIDE_MAX = 1024
"""Pixels of a side of a picture in a figure."""
TITLE_MAX = 28
"""Most characters of a line above an image."""
NOTHING = "Nothing was written."
STATE = click.option(
    "--state", type=PATH, help="State directory, or name of a node [the only one here]."
)


@click.group()
def explain() -> None:
    """Show what tuned prompts say, and where they look."""


@explain.command(short_help="Print the words nearest to each learned vector.")
@STATE
@click.option("--top", default=3, show_default=True, help="Words for each vector.")
@format_option
def words(state: Path | None, top: int, as_json: bool) -> None:
    """Print the vocabulary's nearest words to each learned vector, with their distances.

    Distances are Euclidean, between token embeddings, as in the tables of CoOp and Fed-DPT. A near
    word is not a meaning: learned vectors seldom lie on words.
    """
    if top < 1:
        raise ConfigError(f"--top is {top}; give 1 or more.")
    with Shown(NOTHING) as progress:
        progress("loading the model", 0, 0)
        nearest = load(find(state)).words(top)
    if as_json:
        shown = {
            name: [[{"word": word.word, "distance": word.distance} for word in row] for row in rows]
            for name, rows in nearest.items()
        }
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    table = grid("context", "vector", *("nearest", *("then" for _ in range(top - 1))))
    for name, rows in nearest.items():
        for at, row in enumerate(rows, start=1):
            cells = [Text(f"{word.word} {word.distance:.2f}") for word in row]
            table.add_row(Text(name), str(at), *cells)
    Console().print(table)


@explain.command(short_help="Draw which parts of images speak for a class.")
@click.argument("images", nargs=-1, required=True, type=PATH)
@STATE
@click.option("--class", "wanted", help="Class to look for [the likeliest of each image].")
@click.option("--to", type=PATH, default=Path("maps.png"), show_default=True, help="The picture.")
def maps(images: tuple[Path, ...], state: Path | None, wanted: str | None, to: Path) -> None:
    """Draw which parts of IMAGES speak for a class: zero-shot, and with the tuned prompts.

    A map shows by how much the class's logit falls if a part of the image is hidden. Above each
    image stands the class that the map looks for: the predicted
    class, or that of --class. If the image's folder is named like a class, that is its true class.
    """
    paths = list(image_files(images))
    if not 0 < len(paths) <= IMAGES_MAX:
        raise DataError(f"{len(paths)} images were given; a picture shows 1 to {IMAGES_MAX}.")
    with Shown(NOTHING) as progress:
        progress("loading the model", 0, 0)
        prompts = load(find(state))
        progress("drawing maps", 0, 0)
        named = [wanted] * len(paths) if wanted else prompts.names(paths)
        plain, tuned = prompts.maps(paths, named)
        answers = prompts.answers(tuple(dict.fromkeys((*prompts.classes, *named))))
    known = set(prompts.classes)
    titles = [
        _title(name, path.resolve().parent.name, bool(wanted), known)
        for path, name in zip(paths, named, strict=True)
    ]
    for path, title in zip(paths, titles, strict=True):
        click.echo(foreign.line(f"{path}: {title.replace(chr(10), ', ')}"))
    if answers:
        click.echo(f"{answers}.")
    draw_maps(paths, titles, plain, tuned, to, prompts.settings.data.window)
    click.echo(f"wrote {to}")


def _title(name: str, folder: str, given: bool, classes: Collection[str]) -> str:
    """Return the class that a map looks for and, if its folder is a class, the true class."""
    looked_for = f"looked for: {name}" if given else f"predicted: {name}"
    return f"{looked_for}\ntrue: {folder}" if folder in classes else looked_for


def draw_maps(
    images: Sequence[Path],
    titles: Sequence[str],
    plain: Array,
    tuned: Array,
    to: Path,
    window: Window = None,
) -> None:
    """Draw each image beside its two maps: zero-shot, and with the tuned prompts.

    titles: lines above each image, such as its predicted and its true class. window: of grey
    values, by which images are decoded (data.window).
    """
    count = len(images)
    figure = new_figure(3 * SIZE_IN, (SIZE_IN + 0.4) * count)
    axes = figure.subplots(count, 3, squeeze=False)
    for row, path, title, *maps in zip(axes, images, titles, plain, tuned, strict=True):
        picture = _square(path, window)
        extent = (0, len(picture), len(picture), 0)
        for axis, shares, words in zip(row, (None, *maps), ("", "zero-shot", "tuned"), strict=True):
            axis.imshow(picture, extent=extent)
            if shares is not None:
                axis.imshow(shares, extent=extent, cmap="jet", alpha=0.5, interpolation="bilinear",
                            vmin=0, vmax=1)  # fmt: skip
            lines = (words or title).split("\n")
            axis.set_title("\n".join(foreign.line(line, TITLE_MAX) for line in lines), fontsize=9)
            axis.set_axis_off()
    try:
        figure.savefig(to, dpi=120)
    except (OSError, ValueError) as fault:
        raise StateError(
            f"{to} cannot be written: {fault}; choose another with --to, such as picture.png."
        ) from fault


def _square(path: Path, window: Window) -> Any:
    """Return the central square of an image, as the model sees it: [side, side, 3]."""
    with decode(path, window=window) as decoded:
        side = min(decoded.image.size)
        left, top = (decoded.image.width - side) // 2, (decoded.image.height - side) // 2
        square = decoded.image.crop((left, top, left + side, top + side))
        square.thumbnail((SIDE_MAX, SIDE_MAX))
    return np.asarray(square)
