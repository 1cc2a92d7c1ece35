"""The forms of output: text for people, JSON for programs, CSV for spreadsheets (`--format`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from fednode.core import foreign

Command = TypeVar("Command", bound=Callable[..., Any])


def format_option(command: Command) -> Command:
    """Add `--format text|json` to a command, which gets it as the flag `as_json`."""
    return click.option(
        "--format",
        "as_json",
        type=click.Choice(("text", "json")),
        default="text",
        show_default=True,
        callback=lambda _context, _parameter, value: value == "json",
        help="For people, or for programs.",
    )(command)


def table_format_option(command: Command) -> Command:
    """Add `--format text|json|csv` to a command, which gets it as `form`."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(("text", "json", "csv")),
        default="text",
        show_default=True,
        help="For people, for programs, or for a spreadsheet.",
    )(command)


def csv_table(lines: Iterable[Sequence[Any]]) -> str:
    """Return lines of cells as CSV; a spreadsheet takes no text in them for a formula."""
    text = io.StringIO()
    safe = (
        [foreign.cell(cell) if isinstance(cell, str) else cell for cell in cells] for cells in lines
    )
    csv.writer(text, lineterminator="\n").writerows(safe)
    return text.getvalue()
