"""Read YAML within limits: a short text may stand for endless values, or nest without end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from fednode.errors import ConfigError

TEXT_MAX: Final = 1 << 20
DEPTH_MAX: Final = 32
VALUES_MAX: Final = 100_000
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_NUMBERS: Final = {
    _INT: r"[-+]?(0b[0-1_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$",
    _FLOAT: r"""([-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?$
        |[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$""",
}
"""What YAML 1.1 takes for numbers, without base 60: as in YAML 1.2, 1:30 is a text. The value of a
long text of digits in base 60 would take minutes."""


class _Loader(yaml.SafeLoader):
    """A loader without numbers of base 60, for which every key is text: no, 0 and 010, too."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own name and type)
        first: [pair for pair in pairs if pair[0] not in _NUMBERS]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping whose scalar keys are as they are written."""
        self.flatten_mapping(node)
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


for _tag, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern, re.VERBOSE), [*"-+0123456789."])


def read(text: str, most: int = TEXT_MAX) -> tuple[yaml.Node | None, Any]:
    """Return a text's YAML nodes, which know their lines, and its values.

    Raise YAMLError for a text that is not YAML, longer than `most` characters, or over another
    limit.
    """
    if len(text) > most:
        raise yaml.YAMLError(f"it has {len(text):,} characters, and {most:,} is the limit")
    _check(text)
    loader = _Loader(text)
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


def at(tree: Any, place: Sequence[str]) -> Any:
    """Return the value at a place in a tree; None if there is none."""
    for part in place:
        if isinstance(tree, list) and part.isdigit() and int(part) < len(tree):
            tree = tree[int(part)]
        elif isinstance(tree, dict):
            tree = tree.get(part)
        else:
            return None
    return tree


def leaves(
    tree: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the places of a tree that hold no section, and their values."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def put(tree: dict[str, Any], place: Sequence[str], value: Any, where: str = "") -> None:
    """Put a value into a tree; raise ConfigError, with `where`, if a part is no section."""
    for part in place[:-1]:
        if tree.get(part) is None:
            tree[part] = {}
        tree = tree[part]
        if not isinstance(tree, dict):
            raise ConfigError(f"{where}: {part!r} is not a section.")
    tree[place[-1]] = value


def without(tree: dict[str, Any], place: Sequence[str]) -> dict[str, Any]:
    """Return a copy of a tree without the value at a place."""
    inner = tree.get(place[0])
    if len(place) > 1 and isinstance(inner, dict):
        return {**tree, place[0]: without(inner, place[1:])}
    return {key: value for key, value in tree.items() if key != place[0]}


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


def survey(
    node: yaml.Node | None,
    path: Path,
    place: tuple[str, ...],
    places: dict[tuple[str, ...], str],
) -> None:
    """Note the line of every key; raise ConfigError for a key that is given twice."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            where, name = f"{path}, line {key.start_mark.line + 1}", str(key.value)
            if name in seen:
                raise ConfigError(f"{where}: the key {name!r} is given twice.")
            seen.add(name)
            places[(*place, name)] = where
            survey(value, path, (*place, name), places)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            places[(*place, str(number))] = f"{path}, line {value.start_mark.line + 1}"
            survey(value, path, (*place, str(number)), places)
