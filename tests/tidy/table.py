"""Read the two tables of docs/architecture.md, and judge one import by them.

The tables are the rule; this file only reads them. A module follows the most precise row that
covers it. In a row's part, "*" stands for any one name; in the cell "may import" it stands for the
same name, so a policy may import the files of its own folder and no other policy's.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import NamedTuple

from tests.tidy.tree import ROOT, ROOTS

# What pure parts may import besides fednode: no clock, no entropy, no sockets, files or threads.
PURE_MAY_IMPORT = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "fnmatch", "functools",
    "google", "hashlib", "heapq", "itertools", "json", "math", "msgpack", "numpy", "operator",
    "random", "re", "statistics", "string", "struct", "types", "typing", "zlib",
}  # fmt: skip


class Row(NamedTuple):
    """One line of the table of parts."""

    pure: str
    """"yes", "seeded" (it may draw from numpy's generators with a seed), "lazy" (it may import
    torch later), or nothing: not pure."""
    allowed: tuple[str, ...]
    refused: tuple[str, ...]


class Place(NamedTuple):
    """Where a package from outside may be imported."""

    allowed: tuple[str, ...]
    refused: tuple[str, ...]


def _cells(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its two head lines."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    below = text.split(f"\n{heading}\n", 1)[1]
    lines = below[below.index("\n|") + 1 :].splitlines()
    table = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table][2:]


def _full(word: str) -> str:
    """Return a name of the table as an import name."""
    outside = word.split(".")[0] in {*ROOTS.values(), "tools", "tests"}
    return word if outside else f"fednode.{word}"


def _names(text: str) -> tuple[str, ...]:
    """Return the names between backquotes as import names."""
    return tuple(_full(word) for word in re.findall(r"`([^`]+)`", text))


def _words(cell: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that a cell allows, and those after "but not"."""
    allowed, _, refused = cell.partition("but not")
    return _names(allowed), _names(refused)


@functools.cache
def rows() -> dict[str, Row]:
    """Return the table of parts: import name with "*" -> its row."""
    table: dict[str, Row] = {}
    for parts, _, pure, may_import in _cells("## The parts"):
        for part in _names(parts):
            assert part not in table, f"{part} has two rows in docs/architecture.md"
            table[part] = Row(pure, *_words(may_import))
    return table


@functools.cache
def places() -> dict[str, Place]:
    """Return the packages from outside that have a fixed place."""
    return {
        package: Place(*_words(where))
        for packages, where in _cells("### Packages with a fixed place")
        for package in re.findall(r"`([^`]+)`", packages)
    }


@functools.cache
def matches(name: str, pattern: str) -> bool:
    """Tell whether a module lies at or below a pattern, where "*" stands for one part."""
    if "*" not in pattern:
        return name == pattern or name.startswith(f"{pattern}.")
    parts, words = name.split("."), pattern.split(".")
    return len(parts) >= len(words) and all(
        word in ("*", part) for word, part in zip(words, parts, strict=False)
    )


def anywhere(name: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether a module lies at or below one of the patterns."""
    return any(matches(name, pattern) for pattern in patterns)


@functools.cache
def part_of(module: str) -> str | None:
    """Return the most precise part that covers a module: the longest, or the one without "*"."""
    module = "fednode.__init__" if module == "fednode" else module
    covering = [part for part in rows() if matches(module, part)]
    return max(covering, key=lambda part: (part.count("."), "*" not in part), default=None)


def same(pattern: str, part: str, module: str) -> str:
    """Return a pattern with its "*" replaced by what the part's "*" stands for in the module."""
    if "*" not in pattern or "*" not in part:
        return pattern
    return pattern.replace("*", module.split(".")[part.split(".").index("*")])


def faults(module: str, wanted: set[str] | frozenset[str]) -> list[str]:
    """Return a sentence for each import of a product module that the tables refuse."""
    part = part_of(module)
    if part is None:
        return [f"{module} has no row in docs/architecture.md, 'The parts'"]
    row = rows()[part]
    allowed = tuple(same(word, part, module) for word in row.allowed)
    refused = tuple(same(word, part, module) for word in row.refused)
    found = []
    for target in sorted(wanted):
        top = target.split(".")[0]
        if top in ROOTS.values():
            # "from fednode.core import types" names the module fednode.core.types.
            own = part_of(target) == part and (
                "*" not in part or matches(target, same(part, part, module))
            )
            fine = own or matches(target, "fednode.errors") or anywhere(target, allowed)
            if not fine or anywhere(target, refused):
                found.append(f"{module} must not import {target}: see its row, `{part}`")
        elif row.pure and top not in PURE_MAY_IMPORT and (row.pure, top) != ("lazy", "torch"):
            found.append(f"{module} is pure and must not import {target}")
    return found


def misplaced(module: str, wanted: set[str] | frozenset[str]) -> list[str]:
    """Return a sentence for each package from outside that has no place in a module."""
    outside = sorted(target for target in wanted if target.split(".")[0] not in ROOTS.values())
    return [
        f"{package} has no place in {module}: see 'Packages with a fixed place'"
        for package, place in places().items()
        for target in outside
        if matches(target, package)
        and (not anywhere(module, place.allowed) or anywhere(module, place.refused))
    ]
