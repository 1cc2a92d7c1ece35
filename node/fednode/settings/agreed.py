"""The settings that the nodes of a mesh share; a newcomer takes them from who admits it.

They are settings of the method alone. Images, privacy, paths, addresses and limits are a site's
own: a newcomer takes no such key, whoever sends it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fednode.errors import ConfigError
from fednode.settings import faults
from fednode.settings.read import Settings, Source, Tree, tree_of

SHARED: Final[tuple[tuple[str, ...], ...]] = (
    ("seed",),
    ("model", "name"),
    ("model", "pretrained"),
    ("policy",),
    ("tuning", "context_length"),
    ("tuning", "init_std"),
    ("tuning", "init_words"),
    ("tuning", "template"),
    ("rounds", "mode"),
    ("rounds", "max"),
    ("rounds", "start", "peers"),
    ("topology", "kind"),
    ("topology", "degree"),
    ("topology", "edges"),
)
OWN_FILE: Final = "FILE"
"""What stands for the path of a model's file, which is another at each site."""
LOCAL: Final = "local-dir:"
TEXT_MAX: Final = 16_384


def shared(settings: Settings) -> str:
    """Return the shared settings of a node as JSON."""
    return json.dumps(_picked(tree_of(settings)), sort_keys=True)


def taken(text: str | bytes) -> Tree:
    """Return the shared settings in a text of another node; raise ConfigError for other text."""
    try:
        tree = json.loads(text) if len(text) <= TEXT_MAX else None
    except (ValueError, RecursionError):
        tree = None
    picked = _picked(tree) if isinstance(tree, dict) else {}
    policy = picked.get("policy")
    if not isinstance(policy, dict) or not isinstance(policy.get("name"), str):
        raise ConfigError(
            "The settings of the mesh cannot be read: the two nodes' versions differ."
        )
    return picked


def agreed(settings: Settings) -> Tree:
    """Return the shared settings of a node as a tree of JSON's values."""
    return taken(shared(settings))


def unknown(place: Sequence[str]) -> str:
    """Return a sentence on a key that no setting has; "" for a key of a setting.

    The keys of a policy are not looked at: which there are depends on the policy.
    """
    for at, part in enumerate(place):
        known = faults.keys_of(Settings, place[:at])
        if place[0] != "policy" and known and part not in known:
            key = tuple(place[: at + 1])
            return faults.unknown(key, known, faults.elsewhere_of(Settings, key))
    return ""


def overlaid(source: Source, tree: Mapping[str, Any]) -> Source:
    """Return the settings of a node as written, with the shared settings of the mesh in them.

    tree: the shared settings; a shared key that it does not name is null. A model's file stays the
    node's own. Raise ConfigError if the mesh's model is a file, and the node names none.
    """
    whole = deepcopy(source.tree)
    for place in SHARED:
        own, mesh = faults.at(source.tree, place), faults.at(tree, place)
        if mesh in (OWN_FILE, LOCAL + OWN_FILE):
            if not _is_file(place, own):
                raise ConfigError(
                    f"{source.at(place)}: {'.'.join(place)} is {faults.shown(own)}, and the model "
                    "of this mesh is a file that each site has: name this site's file there."
                )
        else:
            _put(whole, place, deepcopy(mesh))
    return replace(source, tree=whole)


def _put(tree: Tree, place: tuple[str, ...], value: Any) -> None:
    """Put a value at a place of a tree; None takes out what is there."""
    for key in place[:-1]:
        if not isinstance(tree.get(key), dict):
            tree[key] = {}
        tree = tree[key]
    if value is None:
        tree.pop(place[-1], None)
    else:
        tree[place[-1]] = value


def _is_file(place: tuple[str, ...], value: Any) -> bool:
    """Tell whether a model's setting names a file or folder of its node."""
    if place[-1] == "name":
        return str(value or "").startswith(LOCAL)
    return value is not None and ("/" in str(value) or Path(str(value)).exists())


def _picked(tree: Mapping[str, Any]) -> Tree:
    picked: Tree = {}
    for place in SHARED:
        inside: Any = tree
        for key in place:
            inside = inside.get(key) if isinstance(inside, dict) else None
        if inside is None:
            continue
        into = picked
        for key in place[:-1]:
            into = into.setdefault(key, {})
        into[place[-1]] = inside
    model = picked.get("model", {})
    if str(model.get("name", "")).startswith(LOCAL):
        model["name"] = LOCAL + OWN_FILE
    if _is_file(("model", "pretrained"), model.get("pretrained")):
        model["pretrained"] = OWN_FILE
    return picked
