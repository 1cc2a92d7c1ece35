"""The page docs/settings.md: a table of each section."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any, Final, Literal, Union, get_args, get_origin

from fednode.app.writing import EXAMPLES
from fednode.core.settings import MergeSettings
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import POLICY, Settings
from tools.settings.fields import (
    AGREED,
    MARK,
    Setting,
    common,
    is_common,
    marked,
    names_text,
    policies,
    settings_of,
    shown,
    summary,
)

TABLE: Final = ("| key | default | values | what it does |", "|---|---|---|---|")
HEAD: Final = f"""\
# Settings

This page is generated from the code by `make settings`. [Operations](operations.md#settings) says
from which places a value comes. [configs/node.yaml](../configs/node.yaml) is the same list as a
file to start from, with every key that is not needed as a comment; `fednode init` writes it.

{MARK} marks a setting, or a section with all its settings, in which all nodes of a mesh must agree.
Nodes that differ refuse each other and name the difference. Times are in seconds.

An editor that knows JSON schemas completes keys and shows these texts, see
[Operations](operations.md#settings).
"""
PEERS_TEXT: Final = "`peers` lists the nodes. Each entry has these keys:"
BROUGHT: Final = "A policy may bring other defaults for this section:"
MERGE: Final = "policy.merge"


def page() -> str:
    """Return docs/settings.md."""
    lines = ["## node.yaml", *table(Settings)]
    for one in settings_of(Settings):
        if one.section:
            lines += [f"### {one.name}", "", marked(one.name, one.text)]
            lines += table(one.section, f"{one.name}.")
        elif one.name == "policy":
            lines += [f"### {one.name}", "", marked(one.name, one.text), "", *TABLE]
            lines += [f"| `policy.name` | `{POLICY}` | text | {names_text()} |"]
            lines += [*common_rows(), *(line for name in policies() for line in policy(name)), ""]
            lines += [f"### {MERGE}", "", summary(MergeSettings)]
            lines += table(MergeSettings, f"{MERGE}.")
        if one.name == "tuning":
            lines += [BROUGHT, "", "| policy | defaults |", "|---|---|", *brought(), ""]
    lines += ["## peers.yaml", "", summary(Peers), *table(Peers), PEERS_TEXT]
    lines += table(PeerEntry, "peers[].")
    return f"{HEAD}\n" + "\n".join(lines).rstrip() + "\n"


def policy(name: str) -> Iterator[str]:
    """Yield the rows of the settings that a policy alone has, below a row with its name."""
    kind = policies()[name]
    own = [one for one in settings_of(kind.config_type) if not is_common(one)]
    if own:
        yield cells(f"**{name}**", "", "", summary(kind.config_type))
    yield from (row(one, "policy.") for one in own)


def brought() -> Iterator[str]:
    """Yield a row for each policy that brings defaults for `tuning`."""
    for name, kind in policies().items():
        if kind.tuning:
            values = (f"`{key}: {shown(value)}`" for key, value in kind.tuning.items())
            yield cells(name, ", ".join(values))


def rows(kind: type, place: str = "") -> Iterator[str]:
    """Yield the rows of a Markdown table of settings; sections of node.yaml have their own."""
    for one in settings_of(kind):
        here = f"{place}{one.name}"
        if here == MERGE:
            yield f"| `{here}` | see below | section | {one.text} |"
        elif one.section:
            yield from rows(one.section, f"{here}.") if place else ()
        elif here not in ("policy", "peers"):
            yield row(one, place)


def row(one: Setting, place: str) -> str:
    """Return the row of a plain value."""
    here = f"{place}{one.name}"
    mark = f" {MARK}" if here in AGREED else ""
    must = one.default is MISSING or one.name in EXAMPLES
    value = "must be given" if must else f"`{shown(one.default)}`"
    return cells(f"`{here}`{mark}", value, words(one.hint), one.text)


def cells(*texts: str) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def table(kind: type, place: str = "") -> list[str]:
    """Return a Markdown table of settings, between empty lines; nothing if there are none."""
    lines = list(rows(kind, place))
    return ["", *TABLE, *lines, ""] if lines else [""]


def common_rows() -> Iterator[str]:
    """Yield a row for each key that policies have in common; the default of most comes first."""
    every = {name: list(settings_of(kind.config_type)) for name, kind in policies().items()}
    for key, text in common().items():
        having = {
            name: one
            for name, keys in every.items()
            for one in keys
            if one.name == key and is_common(one)
        }
        lacking = ", ".join(name for name in every if name not in having)
        text = f"{text} Not for {lacking}."
        if any(one.section for one in having.values()):
            yield cells(f"`policy.{key}`", "see below", "section", text)
            continue
        by_default: dict[str, list[str]] = {}
        for name, one in having.items():
            by_default.setdefault(f"`{shown(one.default)}`", []).append(name)
        first, *rest = sorted(by_default, key=lambda value: -len(by_default[value]))
        defaults = [first, *(f"{value} for {', '.join(by_default[value])}" for value in rest)]
        values = max((words(one.hint) for one in having.values()), key=len)
        yield cells(f"`policy.{key}`", "; ".join(defaults), values, text)


def words(hint: Any) -> str:
    """Return in words which values a type allows; raise RuntimeError for an unknown type."""
    plain = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    if hint in plain:
        return plain[hint]
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in inside)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if one is type(None) else words(one) for one in inside)
    if origin is tuple and inside[0] in plain:
        return f"list of {words(inside[0])}s" if inside[-1] is Ellipsis else "two numbers"
    if origin is tuple:
        return "list of pairs of names"
    if hint == dict[str, str]:
        return "section of names"
    raise RuntimeError(f"there are no words for the values of type {hint}")
