"""Options and questions that commands share: paths, the forms of output, a yes or no.

The forms are text for people, JSON for programs and CSV for spreadsheets (`--format`).
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from fednode.core import foreign
from fednode.errors import ConfigError, Declined

PATH: Final = click.Path(readable=False, path_type=Path)
"""A path as pathlib.Path, checked by the command; a shell completes it, unlike `type=Path`."""
CONFIG: Final = Path("node.yaml")
PEERS: Final = Path("peers.yaml")
Command = TypeVar("Command", bound=Callable[..., Any])


def settings_here(named: Path | None) -> Path | None:
    """Return the settings that a command was given, or ./node.yaml if there is one."""
    return named or (CONFIG if CONFIG.is_file() else None)


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


def confirm(question: str, matter: str, refusal: str) -> None:
    """Ask a person to confirm something.

    matter: what is done then, such as "delete". refusal: the sentence after another answer than
    yes. Raise Declined after a no, and ConfigError if nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise ConfigError(f"Nobody can be asked here whether to {matter}: give --yes.")
    try:
        if click.confirm(question):
            return
    except click.Abort:
        raise click.Abort from KeyboardInterrupt(refusal)
    raise Declined(refusal)
