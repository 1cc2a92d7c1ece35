"""Write node.yaml and peers.yaml for a new node: every key with its comment, some with a value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from fednode.errors import ConfigError
from fednode.settings import trees
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import Source, put_flags, settings_in
from fednode.settings.shared import SHARED, overlay
from fednode.shipped import config_file
from fednode.storage.disk import explained, put
from fednode.transports.address import RelayEntry

Place = tuple[str, ...]
"""A section, and the keys below it."""
_LINE: Final = re.compile("( *)(#?)([a-z0-9_]+):( .*)?")
"""A line of a setting; the # is there if it is a comment with the default. A section's line ends
with the colon."""
ENTRIES: Final = "\npeers:\n"
"""Behind this line of peers.yaml there are only the entries."""
EXAMPLES: Final = {"domains": ["photo", "art_painting", "cartoon", "sketch"]}
"""Values of keys of policies that have no valid default."""


def node_text(
    tree: Mapping[str, Any], data: Path | None, flags: Sequence[str] = (), founds: bool = False
) -> str:
    """Return the node.yaml of a new node: what is set, and every other key as a comment.

    tree: settings. data: the folder of its images; None for the built-in ones. flags:
    section.key=value. founds: the site founds the mesh, so its flags set shared settings, too.
    Raise ConfigError for a folder that does not exist, or for a flag that cannot be taken.
    """
    whole = {**tree, "data": _images(data)}
    text = with_values(config_file("node.yaml").read_text(encoding="utf-8"), whole)
    places = dict[Place, str]()
    own = Source("--set", {}, places)
    put_flags(own.tree, places, flags)
    values = dict(trees.leaves(own.tree))
    for place, where in places.items():
        if trees.at(own.tree, place) == {}:
            raise ConfigError(f"{where} sets nothing: name a key, as in section.key=value.")
    for place in values:
        if not founds and any(place[: len(key)] == key for key in SHARED):
            raise ConfigError(
                f"{own.at(place)}: all sites of the mesh share {'.'.join(place)}, so no site sets "
                "it alone."
            )
    settings_in(Source("node.yaml", trees.read(text)[1]), {}, flags)  # finds faults
    text = with_values(text, own.tree)
    made = trees.read(text)[1]
    for place, value in values.items():
        if trees.at(made, place) != value:
            raise ConfigError(
                f"{own.at(place)} cannot be set here: write it into node.yaml before the first "
                f"start{'' if founds else ' (join with --no-start)'}."
            )
    return text


def _images(data: Path | None) -> dict[str, Any]:
    """Return the settings of a folder of images, all of which train; None: the built-in images.

    All nodes share the built-in images, so each node takes its block of the classes.
    """
    if data is None:
        return {"partition": {"how": "classes"}}
    folder = data.expanduser().resolve()  # valid wherever the node is started
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(f"--data {folder} {what}: give a folder with one folder per class.")
    return {"path": str(folder), "shots": 0}


def with_values(text: str, tree: Mapping[str, Any]) -> str:
    """Return a node.yaml of the tree's policy, with a value for each key of the tree.

    tree: settings by section and key. Keys that the file does not name are left out.
    """
    policy = trees.at(tree, ("policy", "name"))
    if policy is not None and f"\n  name: {policy}\n" not in text:
        text = _with_policy(text, str(policy))
    return _put(text, dict(trees.leaves(tree)))


def _put(text: str, values: Mapping[Place, object], defaults: bool = False) -> str:
    """Return a text with values behind their keys, also behind those that stand in comments.

    defaults: the values are defaults, so that only comments show them.
    """
    lines, place = list[str](), list[str]()
    for line in text.split("\n"):
        if found := _LINE.fullmatch(line):
            indent, mark, key, text_behind = found.groups()
            place[len(indent) // 2 :] = [key]
            if text_behind and tuple(place) in values and (mark or not defaults):
                value = _yaml(values[tuple(place)])
                line = f"{indent}{mark if defaults else ''}{key}: {value}"
        lines.append(line)
    return "\n".join(lines)


def _yaml(value: object) -> str:
    if isinstance(value, str) and "/" in value:
        return "'" + value.replace("'", "''") + "'"
    said = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return said.removesuffix("\n").removesuffix("\n...")


def mesh_text(peers: Peers) -> str:
    """Return the peers.yaml of a mesh."""
    head, line, _ = config_file("peers.yaml").read_text(encoding="utf-8").partition(ENTRIES)
    head = head.replace("mesh: example\n", f"mesh: {peers.mesh}\n")
    if peers.mesh_key is not None:
        head = head.replace("insecure: true\n", "# insecure: false\n")
        head = head.replace("# mesh_key: null\n", f"mesh_key: {peers.mesh_key}\n")
    if peers.relays:
        head = head.replace("# relays: []\n", f"relays:\n{_entries(peers.relays)}")
    return head + line + _entries(peers.peers)


def write_files(folder: Path, settings: str, peers: Peers) -> None:
    """Write node.yaml and peers.yaml into a folder; raise StateError if that fails."""
    with explained(f"{folder} cannot be made", "."):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("node.yaml", settings), ("peers.yaml", mesh_text(peers))):
        put(folder / name, text, "folder", for_all=True)


def _entries(nodes: Sequence[PeerEntry | RelayEntry]) -> str:
    return "".join(f'  - {{name: {one.name}, address: "{one.address}"}}\n' for one in nodes)


def _with_policy(text: str, name: str) -> str:
    """Return a node.yaml with the keys of another policy, and the defaults that it brings."""
    from fednode import registry

    kind = registry.policy(name)
    head = ("policy:", "  # docs/settings.md explains the keys (*).", f"  name: {name}")
    section = "\n".join([*head, *_keys(kind.config_type, "  ")])
    before, _, rest = text.partition("\npolicy:\n")
    rounds: Mapping[str, object] = getattr(kind, "rounds", {})  # as the settings are read
    text = f"{before}\n{section}\n\n{rest.partition(chr(10) * 2)[2]}"
    return _put(
        text, dict(trees.leaves({"tuning": dict(kind.tuning), "rounds": dict(rounds)})), True
    )


def _keys(section: Any, indent: str) -> list[str]:
    """Return the keys of a section, each as a comment with its default."""
    lines = []
    for key in fields(section):
        nested: Any = key.default_factory
        if is_dataclass(nested):
            lines += [f"{indent}{key.name}:", *_keys(nested, f"{indent}  ")]
        elif key.name in EXAMPLES:
            lines.append(f"{indent}{key.name}: {_yaml(EXAMPLES[key.name])}")
        else:
            default = list(key.default) if isinstance(key.default, tuple) else key.default
            lines.append(f"{indent}#{key.name}: {_yaml(default)}")
    return lines


def with_shared(text: str, tree: Mapping[str, Any], where: str = "node.yaml") -> str:
    """Return a node.yaml with the shared settings of a mesh in place of its own.

    All other keys stay. Comments stay, too, if each shared key stands where it does in the
    node.yaml that `init` writes. where: the file, for errors. Raise ConfigError if the model of the
    mesh is a file, and the node names none.
    """
    held = trees.read(text)[1] or {}
    whole = _bare(overlay(Source(where, held), tree).tree)
    was, now = dict(trees.leaves(_bare(held))), dict(trees.leaves(whole))
    changed = {place: now.get(place) for place in was | now if was.get(place) != now.get(place)}
    base = text
    if ("policy", "name") in changed:
        base = _with_policy(text, str(whole["policy"]["name"]))
        changed |= {place: value for place, value in now.items() if place[0] == "policy"}
    edited = _put(base, changed)
    return edited if _reads(edited, whole) else yaml.safe_dump(whole, sort_keys=False)


def _reads(text: str, tree: Any) -> bool:
    """Tell whether a text is a valid file with these settings."""
    try:
        node, found = trees.read(text)
        trees.survey(node, Path("node.yaml"), (), {})
    except (yaml.YAMLError, ConfigError):
        return False
    return bool(_bare(found) == tree)


def _bare(tree: Any) -> Any:
    """Return a tree without keys that hold nothing."""
    if not isinstance(tree, dict):
        return tree
    bare = {key: _bare(value) for key, value in tree.items()}
    return {key: value for key, value in bare.items() if value not in (None, {})}
