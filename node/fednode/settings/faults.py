"""Say in one sentence what is wrong with a setting: its place, its value and what is allowed.

Settings are dataclasses. What a type allows is said in words from the type, so a sentence does not
depend on the library that found the fault.
"""

from __future__ import annotations

import datetime
import difflib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin

from fednode.settings import trees

get_type_hints: Final[Callable[[Any], dict[str, Any]]] = cache(typing.get_type_hints)
Place = tuple[str, ...]
GENERAL: Final = frozenset({"name", "kind", "path"})
"""Keys that mean something else in each section."""
ZERO: Final = {"data.shots": "0 takes all", "rounds.max": "0 means no end"}
"""What the number 0 stands for, where one may write a word for it."""
SHOWN_MAX: Final = 80
_PLAIN: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a section",
    type(None): "null",
}
_SEVERAL: Final[Mapping[Any, str]] = {str: "texts", int: "whole numbers", float: "numbers"}
_UNKNOWN: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_MISSING: Final = frozenset({"missing", "missing_argument"})


def words(hint: Any) -> str:
    """Return in words which values a type allows."""
    said = list(_alternatives(hint))
    return f"{', '.join(said[:-1])} or {said[-1]}" if len(said) > 1 else said[0]


def _alternatives(hint: Any) -> Iterator[str]:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        for alternative in inside:
            yield from _alternatives(alternative)
    elif origin is Literal:
        yield from (f"'{literal}'" for literal in inside)
    elif origin is tuple and Ellipsis not in inside:
        yield f"a list of {len(inside)} {_SEVERAL.get(inside[0], 'values')}"
    elif origin is tuple:
        yield f"a list of {_SEVERAL[inside[0]]}" if inside[0] in _SEVERAL else "a list"
    else:
        yield _PLAIN.get(origin or hint, "a section" if is_dataclass(hint) else "of another type")


def shown(value: Any) -> str:
    """Return a value as YAML writes it, shortened."""
    word = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    plain = str(value) if isinstance(value, datetime.date) else repr(value)
    text = word or ("null" if value is None else plain)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def inner(hint: Any, part: str) -> Any:
    """Return the type of a key or item inside a type; None if there is no such thing."""
    if is_dataclass(hint):
        return get_type_hints(hint).get(part)
    if get_origin(hint) is dict:
        return get_args(hint)[1]
    if get_origin(hint) is tuple and part.isdigit():
        inside = get_args(hint)
        return inside[0] if Ellipsis in inside else dict(enumerate(inside)).get(int(part))
    if get_origin(hint) in (Union, types.UnionType):
        hints = (inner(alternative, part) for alternative in get_args(hint))
        return next((hint_inside for hint_inside in hints if hint_inside is not None), None)
    return None


def filled(kind: Any, tree: Any) -> Any:
    """Return a copy of a tree in which a section without content is an empty section."""
    if not (is_dataclass(kind) and isinstance(tree, dict)):
        return tree
    hints = get_type_hints(kind)
    return {
        key: {} if value is None and is_dataclass(hints.get(key)) else filled(hints.get(key), value)
        for key, value in tree.items()
    }


def switches(
    hint: Any, value: Any, inside: Place, place: Place = ()
) -> Iterator[tuple[Place, str]]:
    """Yield the places where true or false stands for a number, and that fault in words.

    pydantic takes them for 1 or 0.
    """
    if isinstance(value, bool):
        allowed = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if bool not in allowed and {int, float} & set(allowed):
            yield place, _must((*inside, *place), value, words(hint))
    elif isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            hint_below = inner(hint, str(key))
            if hint_below is not None:
                yield from switches(hint_below, below, inside, (*place, str(key)))


def _must(place: Place, value: Any, allowed: str) -> str:
    return f"{'.'.join(place) or 'the file'} is {shown(value)}; it must be {allowed}."


def true_place(kind: Any, tree: Any, location: Sequence[Any]) -> Place:
    """Return the place of a fault without the names of a union's branches."""
    place: list[str] = []
    hint = kind
    for part in map(str, location):
        hint = inner(hint, part)
        section = trees.at(tree, place)
        known = isinstance(section, dict) and part in section
        if hint is None and not known:
            break
        place.append(part)
    return tuple(place)


def sentence(kind: Any, tree: Any, fault: Mapping[str, Any], inside: Place) -> tuple[Place, str]:
    """Return the place of a fault that pydantic found, and the fault in words.

    The words do not say where the key stands, and the place does not include `inside`.
    """
    location, missing = fault["loc"], fault["type"] in _MISSING
    if missing and isinstance(location[-1], int):  # a list of fixed length is too short
        location, missing = location[:-1], False
    own = true_place(kind, tree, location)
    place = (*inside, *own)
    if fault["type"] in _UNKNOWN:
        return own, unknown(place, keys_of(kind, own[:-1]), elsewhere_of(kind, own))
    if missing:
        return (), f"{_of_list((*inside, *location))} is missing."
    if fault["type"] == "value_error":  # the settings class names its key itself
        said = str(fault["msg"]).removeprefix("Value error, ").removesuffix(".")
        word = said.partition(" ")[0].split(".")
        known = (
            tuple(word[: len(place)]) == place and trees.at(tree, word[len(inside) :]) is not None
        )
        return (tuple(word[len(inside) :]) if known else own), f"{said}."
    value, hint = trees.at(tree, own), _hint_at(kind, own)
    must = "a section" if str(fault["type"]).startswith("dataclass") else words(hint)
    if hint is str and isinstance(value, bool | int | float | datetime.date):
        quoted = '"yes" or "no"' if isinstance(value, bool) else f'"{value}"'
        must += f": write it in quotes, such as {quoted}"
    elif ".".join(place) in ZERO:
        must += f"; {ZERO['.'.join(place)]}"
    return own, _must(place, value, must)


def _of_list(place: Sequence[str | int]) -> str:
    """Return a key's place in words, quoted; entries of lists are counted from 1."""
    parts = [str(part) for part in place]
    at = max((n for n, part in enumerate(parts) if part.isdecimal()), default=None)
    if at is None or at + 1 == len(parts):
        return repr(".".join(parts))
    inside, key = ".".join(parts[:at]), ".".join(parts[at + 1 :])
    return f"{key!r} in entry {int(parts[at]) + 1} of {inside!r}"


def elsewhere_of(kind: Any, place: Place) -> list[str]:
    """Return the keys of the same name in other sections, such as tuning.lr for lr."""
    if place[-1] in GENERAL:
        return []
    sections = {
        section: keys_of(kind, (section,)) for section in keys_of(kind) if (section,) != place[:-1]
    }
    return [f"{section}.{place[-1]}" for section, keys in sections.items() if place[-1] in keys]


def unknown(place: Place, known: Sequence[str], elsewhere: Sequence[str] = ()) -> str:
    """Return what to say of an unknown key: the nearest valid key.

    elsewhere: keys of the same name in other sections.
    """
    near = elsewhere or difflib.get_close_matches(place[-1], known, 1)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "remove it."
    return f"unknown key {_of_list(place)}; {hint}"


def meant(said: str, known: Sequence[str]) -> str:
    """Return a question with the name that is nearest to what was said; "" if none is near."""
    near = difflib.get_close_matches(said, known, 1)
    return f"did you mean {near[0]!r}?" if near else ""


def keys_of(kind: Any, place: Sequence[str] = ()) -> list[str]:
    """Return the valid keys at a place."""
    hint = _hint_at(kind, place)
    return [field.name for field in fields(hint)] if is_dataclass(hint) else []


def _hint_at(kind: Any, place: Sequence[str]) -> Any:
    """Return the type of the value at a place."""
    for part in place:
        kind = inner(kind, part)
    return kind
