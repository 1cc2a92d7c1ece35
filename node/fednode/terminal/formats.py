"""The forms of output: text for people, JSON for programs, CSV for spreadsheets (`--format`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict

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


def plain(message: Any) -> dict[str, Any]:
    """Return a protobuf message as JSON types, with all fields."""
    tree = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _numbered(tree, message.DESCRIPTOR)


def csv_table(lines: Iterable[Sequence[Any]]) -> str:
    """Return lines of cells as CSV; a spreadsheet takes no text in them for a formula."""
    text = io.StringIO()
    safe = (
        [foreign.cell(cell) if isinstance(cell, str) else cell for cell in cells] for cells in lines
    )
    csv.writer(text, lineterminator="\n").writerows(safe)
    return text.getvalue()


def _numbered(tree: dict[str, Any], kind: Descriptor) -> dict[str, Any]:
    """Return a tree whose counts are numbers; protobuf writes 64-bit numbers as text."""
    return {name: _number(value, kind.fields_by_name[name]) for name, value in tree.items()}


def _number(value: Any, field: FieldDescriptor) -> Any:
    inside = field.message_type
    if inside is not None and inside.GetOptions().map_entry:
        held = inside.fields_by_name["value"]
        return {key: _number(entry, held) for key, entry in value.items()}
    if isinstance(value, list):
        return [_number(entry, field) for entry in value]
    if inside is not None:
        return _numbered(value, inside)
    counts = field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
    return int(value) if counts else value
