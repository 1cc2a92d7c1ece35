"""`fednode bench sums`: what class sums of policy gda cost."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from fednode.lab.bench.output import Column, Panel, draw, output_options, show

CLASSES: Final = (10, 100, 1000)
WIDTHS: Final = (256, 512)
COLUMNS: Final = (
    Column("classes", "classes"),
    Column("width", "width"),
    Column("message", "message", "bytes", 8),
    Column("head_ms", "classifier", "ms"),
    Column("left_out_ms", "left out", "ms/image"),
)
NOTE: Final = (
    "Four nodes with eight images of each class; drawn features. message: a node's counts and\n"
    "sums. classifier: from the sums of all nodes. left out: an image's logits without it."
)


@click.command()
@click.option("--classes", type=click.IntRange(1, 4096), multiple=True, help="Numbers of classes.")
@click.option("--width", type=click.IntRange(1, 4096), multiple=True, help="Widths of features.")
@output_options
def sums(classes: tuple[int, ...], width: tuple[int, ...], plot: Path | None, form: str) -> None:
    """Time policy gda's classifier and its left-out losses, and count a message."""
    from fednode.lab.bench.sums import measure

    rows = [measure(count, size) for size in width or WIDTHS for count in classes or CLASSES]
    title = "Class sums (policy gda)"
    show(form, title, rows, COLUMNS, NOTE)
    if plot:
        lines = {
            f"{size} numbers": [(row.classes, row.head_ms) for row in rows if row.width == size]
            for size in sorted({row.width for row in rows})
        }
        draw([Panel("classifier, ms", "classes", lines)], title, plot)
