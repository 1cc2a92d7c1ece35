"""Make the text of others safe to show: on a terminal, in a log, on a page, in Markdown or CSV.

A peer, a newcomer or a file may hold any text: sequences that clear a terminal, rename its
window or fill its clipboard; marks that turn the direction of reading; lines that look like this
program's own. Text is made safe where it comes in. Frames with such text are refused
(node/fednode/wire/codec.py). node/fednode/wire/replies.py cleans replies of daemons,
node/fednode/observe/events.py cleans records.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 1000
CUT: Final = "\N{HORIZONTAL ELLIPSIS}"
MARKDOWN: Final = "\\`*[]<>|"
FORMULA: Final = ("=", "+", "-", "@")  # characters at which a spreadsheet takes text for a formula


JOINERS: Final = "\u200c\u200d"
"""Characters without a width that spelling takes: Persian, Indian scripts, joined emoji."""


def printable(text: str) -> bool:
    """Tell whether a text shows what it holds, in one line: only joiners have no width."""
    return text.isprintable() or all(letter.isprintable() or letter in JOINERS for letter in text)


def line(text: str, most: int | None = LONGEST) -> str:
    """Return a text as one line of at most `most` characters; None for any number.

    Characters that are not printable (control characters, line ends, direction marks) become
    spaces.
    """
    if not printable(text):
        text = "".join(letter if printable(letter) else " " for letter in text)
    return text if most is None or len(text) <= most else text[: most - 1] + CUT


def markdown(text: str) -> str:
    """Return a text escaped for Markdown, for a paragraph or the cell of a table."""
    return "".join(f"\\{letter}" if letter in MARKDOWN else letter for letter in line(text))


def cell(text: str) -> str:
    """Return a text escaped so that a spreadsheet takes it for text, not for a formula."""
    text = line(text)
    return f"'{text}" if text.startswith(FORMULA) and not _number(text) else text


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
