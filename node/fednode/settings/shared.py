"""The settings that the nodes of a mesh share; a newcomer takes them from who admits it.

They are settings of the method alone. Images, privacy, paths, addresses and limits are a site's
own: a newcomer takes no such key, whoever sends it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fednode.errors import ConfigError
from fednode.settings import faults, trees
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
)
OWN_FILE: Final = "FILE"
LOCAL: Final = "local-dir:"
OWN_MODELS: Final[Mapping[tuple[str, ...], str]] = {
    ("model", "name"): LOCAL + OWN_FILE,
    ("model", "pretrained"): OWN_FILE,
}
"""What stands for a model that each site has as a file of its own."""
TEXT_MAX: Final = 16_384


def shared_text(settings: Settings) -> str:
    """Return the shared settings of a node as JSON."""
    return json.dumps(_pick(tree_of(settings)), sort_keys=True)


def parse(text: str | bytes) -> Tree:
    """Return the shared settings in a text of another node; raise ConfigError for other text."""
    try:
        tree = json.loads(text) if len(text) <= TEXT_MAX else None
    except (ValueError, RecursionError):
        tree = None
    picked = _pick(tree) if isinstance(tree, dict) else {}
    if not isinstance(trees.at(picked, ("policy", "name")), str):
        raise ConfigError(
            "The settings of the mesh cannot be read: the two nodes' versions differ."
        )
    return picked


def shared_tree(settings: Settings) -> Tree:
    """Return the shared settings of a node as a tree of JSON's values."""
    return parse(shared_text(settings))


def overlay(source: Source, tree: Mapping[str, Any]) -> Source:
    """Return the settings of a node as written, with the shared settings of the mesh in them.

    tree: the shared settings; a shared key that it does not name is null. A model's file stays the
    node's own. Raise ConfigError if the mesh's model is a file, and the node names none.
    """
    whole = deepcopy(source.tree)
    for place in SHARED:
        own, mesh = trees.at(source.tree, place), trees.at(tree, place)
        if mesh is None:
            whole = trees.without(whole, place)
        elif mesh != OWN_MODELS.get(place):
            trees.put(whole, place, deepcopy(mesh), source.where)
        elif not _is_file(place, own):
            raise ConfigError(
                f"{source.at(place)}: {'.'.join(place)} is {faults.shown(own)}, and the model "
                "of this mesh is a file that each site has: name this site's file there."
            )
    return replace(source, tree=whole)


def _is_file(place: tuple[str, ...], value: Any) -> bool:
    """Tell whether a model's setting names a file or folder of its node."""
    if place[-1] == "name":
        return str(value or "").startswith(LOCAL)
    return value is not None and ("/" in str(value) or Path(str(value)).exists())


def _pick(tree: Mapping[str, Any]) -> Tree:
    """Return the shared keys of a tree that are set, without the paths of models' files."""
    picked: Tree = {}
    for place in SHARED:
        value = trees.at(tree, place)
        if place in OWN_MODELS and _is_file(place, value):
            value = OWN_MODELS[place]
        if value is not None:
            trees.put(picked, place, value)
    return picked


def lines(tree: Tree) -> list[str]:
    """Return shared settings as lines."""
    return [f"{key}: {_words(value)}" for key, value in sorted(_flat(tree).items())]


def changes(before: Tree, after: Tree) -> dict[str, str]:
    """Return a line with both values for each key of the shared settings that differs."""
    old, new = _flat(before), _flat(after)
    values = {key: (old.get(key), new.get(key)) for key in sorted({**old, **new})}
    return {
        key: f"{key}: {_words(was)} -> {_words(now)}"
        for key, (was, now) in values.items()
        if repr(was) != repr(now)  # True == 1
    }


def _flat(tree: Tree) -> dict[str, Any]:
    return {".".join(place): value for place, value in trees.leaves(tree)}


def _words(value: Any) -> str:
    return faults.shown(value).strip("'")
