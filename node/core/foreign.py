"""Make the text of others safe to show: on a terminal, in a log, on a page, in Markdown or CSV.

A peer, an introducer or a file may say anything: sequences that clear a terminal, rename its window
or fill its clipboard, marks that turn the direction of reading, lines that look like lines of ours.
Text is made safe where it comes in. Frames hold no such text at all (node/wire/codec.py); replies
of daemons are cleaned by node/wire/replies.py, and records by node/runtime/events.py.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 1000
CUT: Final = "\N{HORIZONTAL ELLIPSIS}"
MARKDOWN: Final = "\\`*[]<>|"
FORMULA: Final = ("=", "+", "-", "@")
"""What a spreadsheet takes for the beginning of a formula."""


def line(text: str, most: int | None = LONGEST) -> str:
    """Return a text as one line of at most `most` characters; None for any number.

    What is not printable (control characters, ends of lines, marks of direction) becomes a space.
    """
    if not text.isprintable():
        text = "".join(one if one.isprintable() else " " for one in text)
    return text if most is None or len(text) <= most else text[: most - 1] + CUT


def markdown(text: str) -> str:
    """Return a text as Markdown shows it literally, in a paragraph or in a cell of a table."""
    return "".join(f"\\{one}" if one in MARKDOWN else one for one in line(text))


def cell(text: str) -> str:
    """Return a text as a spreadsheet takes it for text, not for a formula."""
    text = line(text)
    return f"'{text}" if text.startswith(FORMULA) and not _number(text) else text


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
