"""Read YAML within limits: a short text may stand for endless values, or nest without end."""

from __future__ import annotations

from typing import Any, Final

import yaml

TEXT_MAX: Final = 1 << 20
DEPTH_MAX: Final = 32
VALUES_MAX: Final = 100_000


def read(text: str, most: int = TEXT_MAX) -> tuple[yaml.Node | None, Any]:
    """Return a text's YAML nodes, which know their lines, and its values.

    Raise YAMLError for a text that is not YAML, longer than `most` characters, or over another
    limit.
    """
    if len(text) > most:
        raise yaml.YAMLError(f"it has {len(text):,} characters, and {most:,} is the limit")
    _check(text)
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    except (ValueError, RecursionError) as fault:  # a date in month 13, a number without end
        raise yaml.YAMLError(str(fault)) from fault
    finally:
        loader.dispose()


def why(fault: yaml.YAMLError) -> str:
    """Return what is wrong with a text that is not YAML, and in which line."""
    if isinstance(fault, yaml.MarkedYAMLError) and fault.problem_mark is not None:
        mark = fault.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {fault.problem}"
    return " ".join(str(fault).split())


def _check(text: str) -> None:
    """Count the values that a text stands for, aliases followed, before any value is built."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, yaml.SafeLoader):
        size, anchor = 0, getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if anchor not in sizes:
                raise yaml.YAMLError(f"the alias {anchor!r} refers to itself, or to nothing")
            size = sizes[anchor]
        elif isinstance(event, yaml.ScalarEvent):
            size = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((anchor, 1))
            if len(open_) - 1 > DEPTH_MAX:
                raise yaml.YAMLError(f"it nests deeper than {DEPTH_MAX} levels")
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_.pop()
        if anchor is not None:
            sizes[anchor] = size
        outer, total = open_.pop()
        if total + size > VALUES_MAX:
            raise yaml.YAMLError(f"it stands for more than {VALUES_MAX:,} values")
        open_.append((outer, total + size))
