"""Say how two settings of a mesh differ, and whether a site's own rule accepts the change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fednode.errors import ConfigError
from fednode.settings.agreed import shared
from fednode.settings.allow import AllowSettings
from fednode.settings.faults import shown
from fednode.settings.read import Source, Tree, settings_of

RELAYS: Final = "relays"
ROUNDS: Final = "rounds.max"
GOES_ON: Final = (ROUNDS, "rounds.start.", "topology.", RELAYS)
"""Keys whose change lets the rounds go on: how many there are, and between which nodes."""
BROUGHT: Final = ("tuning.", "rounds.mode")
"""Keys for which a policy brings values of its own."""
NOT_SET: Final = "not set"
Relays = Sequence[tuple[str, str]]
Change = tuple[str, Any, Any]
"""A key such as "rounds.max", its value before, and its value after; None where it is not set."""


def changes(before: Tree, after: Tree, was: Relays = (), now: Relays = ()) -> list[Change]:
    """Return the keys of the shared settings that differ, by name. was, now: the relays."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    keys = sorted({*old, *new}, key=lambda key: (key != "policy.name", key))
    found = [
        (key, old.get(key), new.get(key)) for key in keys if _plain(old, key) != _plain(new, key)
    ]
    if sorted(was) != sorted(now):
        found.append((RELAYS, [address for address, _ in was], [address for address, _ in now]))
    return found


def in_words(found: Sequence[Change], anew: bool) -> list[str]:
    """Return changes as lines: one for each key, and what happens to the rounds."""
    lines = [f"{key}: {_said(old)} -> {_said(new)}" for key, old, new in found]
    if not found:
        return ["nothing changes"]
    if anew:
        return [*lines, "the rounds begin anew; what was learned so far is kept under runs"]
    return [*lines, "the rounds go on"]


def begins_anew(found: Sequence[Change]) -> bool:
    """Tell whether the rounds begin anew after these changes, as for another policy or model."""
    return any(not key.startswith(GOES_ON) for key, _, _ in found)


def refusal(rule: AllowSettings, found: Sequence[Change], after: Tree) -> str:
    """Return why a site's rule does not accept changes by itself; "" if it does.

    after: the whole shared settings after the changes.
    """
    if rule == AllowSettings():
        return "this node's `allow` accepts no change by itself"
    policy = after.get("policy", {})
    name = str(policy.get("name", "")) if isinstance(policy, Mapping) else ""
    brought = _brought(name) if name in rule.policies else {}
    for key, _, value in found:
        if key.startswith("policy."):
            if name not in rule.policies:
                return f"allow.policies does not name {name!r}"
        elif key == ROUNDS:
            if not (isinstance(value, int) and 0 < value <= rule.rounds):
                return f"rounds.max becomes {_said(value)}, and allow.rounds is {rule.rounds}"
        elif key.startswith("model."):
            if not rule.model:
                return "the model changes, and allow.model is false"
        elif not (key.startswith(BROUGHT) and key in brought and brought[key] == value):
            return f"{key} changes, and `allow` accepts no change of it"
    return ""


def _brought(policy: str) -> dict[str, Any]:
    """Return the values that a policy brings for the shared keys outside of its own section."""
    try:
        tree = json.loads(shared(settings_of(Source("settings", {"policy": {"name": policy}}))))
    except ConfigError:  # some policies take no defaults
        return {}
    said = dict(_leaves(tree))
    keys = ("tuning.context_length", "tuning.init_std", "tuning.init_words", "rounds.mode")
    return {key: said.get(key) for key in keys}


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
    if isinstance(value, list):
        value = ", ".join(map(str, value)) or None
        return NOT_SET if value is None else shown(value).strip("'")
    return NOT_SET if value is None else shown(value).strip("'")
