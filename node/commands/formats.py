"""The option `--format` of commands that print results: text for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from google.protobuf.json_format import MessageToDict

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


def plain(message: Any) -> dict[str, Any]:
    """Return a protobuf message as JSON types, with all fields; 64-bit numbers become text."""
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
