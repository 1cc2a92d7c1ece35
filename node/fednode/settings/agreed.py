"""The settings that the nodes of a mesh share; a newcomer takes them from who admits it.

They are settings of the method alone. Images, privacy, paths, addresses and limits are a site's
own: a newcomer takes no such key, whoever sends it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fednode.errors import ConfigError
from fednode.settings.read import Settings, Tree, tree_of

SHARED: Final[tuple[tuple[str, ...], ...]] = (
    ("seed",),
    ("model", "name"),
    ("model", "pretrained"),
    ("policy",),
    ("tuning", "context_length"),
    ("tuning", "init_std"),
    ("tuning", "init_words"),
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


def taken(text: str) -> Tree:
    """Return the shared settings in a text of another node; raise ConfigError for other text."""
    try:
        tree = json.loads(text) if len(text) <= TEXT_MAX else None
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise ConfigError(
            "The settings of the mesh cannot be read: the two nodes' versions differ."
        )
    return _picked(tree)


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
    if "/" in str(model.get("pretrained", "")) or Path(str(model.get("pretrained"))).exists():
        model["pretrained"] = OWN_FILE
    return picked
