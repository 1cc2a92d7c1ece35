"""Say what the shared settings of a mesh are, and how two of them differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fednode.settings.faults import shown
from fednode.settings.read import Tree

NOT_SET: Final = "not set"
Change = tuple[str, Any, Any]
"""A key such as "rounds.max", its value before, and its value after; None where it is not set."""


def lines(tree: Tree) -> list[str]:
    """Return shared settings as lines, the policy's name first."""
    return [f"{key}: {_said(value)}" for key, value in sorted(_leaves(tree), key=_place)]


def changes(before: Tree, after: Tree) -> list[Change]:
    """Return the keys of the shared settings that differ, the policy's name first."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    every = sorted({**old, **new}.items(), key=_place)
    return [
        (key, old.get(key), new.get(key))
        for key, _ in every
        if _plain(old, key) != _plain(new, key)
    ]


def in_words(found: Sequence[Change]) -> list[str]:
    """Return changes as lines, one for each key."""
    return [f"{key}: {_said(old)} -> {_said(new)}" for key, old, new in found]


def _place(leaf: tuple[str, Any]) -> tuple[bool, str]:
    return leaf[0] != "policy.name", leaf[0]


def _leaves(tree: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a tree that hold no section, and their values."""
    for key, value in tree.items() if isinstance(tree, Mapping) else ():
        name = f"{place}.{key}" if place else str(key)
        if isinstance(value, Mapping):
            yield from _leaves(value, name)
        else:
            yield name, list(value) if isinstance(value, tuple) else value


def _plain(leaves: Mapping[str, Any], key: str) -> str:
    """Return a value in a form in which equal values are equal, and true is not 1."""
    return json.dumps(leaves.get(key), sort_keys=True, default=str)


def _said(value: Any) -> str:
    if isinstance(value, list):  # of pairs of names, or of words
        items = ("-".join(map(str, one)) if isinstance(one, list) else str(one) for one in value)
        value = ", ".join(items) or None
    return NOT_SET if value is None else shown(value).strip("'")
