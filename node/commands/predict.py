"""`fednode predict IMAGE...`: class names and probabilities from a node's tuned prompts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from node.api import load
from node.commands.formats import format_option
from node.commands.plan import find
from node.data.images import SUFFIXES
from node.errors import ConfigError, DataError


def _files(given: Iterable[Path]) -> Iterator[Path]:
    """Yield image files, those of a folder in order; raise DataError where there is none."""
    for path in given:
        if str(path) == "-":
            lines = sys.stdin.read().splitlines()
            yield from _files(Path(line) for line in lines if line.strip())
        elif path.is_dir():
            yield from sorted(
                one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES and one.is_file()
            )
        elif path.is_file():
            yield path
        else:
            raise DataError(f"There is no image file {path}: give the path of an image or folder.")


@click.command()
@click.argument("images", nargs=-1, required=True, type=Path)
@click.option("--state", type=Path, help="State directory [the only one of this machine].")
@click.option("--classes", help="Class names to choose among, a,b,c [the node's own].")
@click.option("--top", default=3, show_default=True, help="Class names to print for an image.")
@format_option
def predict(
    images: tuple[Path, ...], state: Path | None, classes: str | None, top: int, as_json: bool
) -> None:
    """Name what IMAGES show, with the tuned prompts of a state directory.

    A folder stands for all images in it, at any depth; - for paths on standard input, one a line.
    """
    images = tuple(_files(images))
    if not images:
        raise DataError("There is no image in what was given.")
    prompts = load(find(state))
    names = tuple(name.strip() for name in classes.split(",")) if classes else prompts.classes
    if not all(names) or top < 1:
        raise ConfigError("--classes holds an empty name, or --top is below 1.")
    probabilities = prompts.probabilities(images, names)
    for image, row in zip(images, probabilities, strict=True):
        order = sorted(range(len(names)), key=lambda at: (-float(row[at]), at))[:top]
        found = {names[at]: round(float(row[at]), 6) for at in order}
        if as_json:
            click.echo(json.dumps({"image": str(image), "classes": found}))
        else:
            shown = ", ".join(f"{name} {100 * value:.1f} %" for name, value in found.items())
            click.echo(f"{image}: {shown}")
