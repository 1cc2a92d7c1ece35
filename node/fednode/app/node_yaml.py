"""Write node.yaml and peers.yaml for a new node: every key with its comment, some with a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from fednode.errors import ConfigError
from fednode.settings import trees
from fednode.settings.peers import PeerEntry
from fednode.settings.read import Source
from fednode.settings.shared import SHARED, overlay
from fednode.shipped import config_file
from fednode.storage.disk import because
from fednode.storage.files import put
from fednode.transports.address import RelayEntry

ENTRIES: Final = "\npeers:\n"
"""Behind this line of peers.yaml there are only the entries."""
EXAMPLES: Final = {"domains": ["photo", "art_painting", "cartoon", "sketch"]}
"""Values of keys of policies that have no valid default."""
EVERYWHERE: Final = (
    "# The mesh, the same file for every node: `fednode start --peers peers.yaml --name a` is "
    "one.\n"
)
OWN_FILE: Final = (
    "# How this node finds its mesh. Each node has such a file of its own; members that are not\n"
    "# listed here make themselves known to each other.\n"
)


def with_images(text: str, data: Path | None) -> str:
    """Return a node.yaml for a folder of images, all of which train; None: the built-in images.

    All nodes share the built-in images, so each node takes its block of the classes. Raise
    ConfigError for a folder that does not exist.
    """
    if data is None:
        return text.replace("    #how: none\n", "    how: classes\n")
    folder = data.expanduser().resolve()  # valid wherever the node is started
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(f"--data {folder} {what}: give a folder with one folder per class.")
    text = text.replace("  path: builtin\n", f"  path: {_yaml(str(folder))}\n")
    return text.replace("  #shots: 8\n", "  shots: 0\n")


def with_values(text: str, tree: Mapping[str, Any]) -> str:
    """Return a node.yaml of the tree's policy, with a value for each of its keys.

    tree: settings by section and key, which the file names as comments.
    """
    policy = dict(tree.get("policy", {}))
    text = with_policy(text, str(policy["name"]))
    if any(isinstance(value, dict) for value in policy.values()):
        before, _, rest = text.partition("\npolicy:\n")
        whole = yaml.safe_dump({"policy": policy}, sort_keys=False)
        return with_keys(f"{before}\n{whole}\n{rest.partition(chr(10) * 2)[2]}", tree)
    return with_keys(text, {**tree, "policy": policy})


def with_keys(text: str, tree: Mapping[str, Any]) -> str:
    """Return a node.yaml with a value for each key of a tree, but not for nested policy keys."""
    for key, value in tree.items():
        if not isinstance(value, dict):
            text = _put(text, key, value)
            continue
        head, start, rest = text.partition(f"\n{key}:\n")
        inside, end, after = rest.partition("\n\n")
        for name, inner in _leaves(value):
            inside = _put(inside, name, inner, " +")
        text = head + start + inside + end + after
    return text


def _put(text: str, key: str, value: object, indent: str = "") -> str:
    """Return a text with a value behind a key, which may stand in a comment."""
    line = f"{key}: {_yaml(value)}"
    return re.sub(rf"(?m)^({indent})#?{key}: .*$", lambda match: match[1] + line, text)


def _leaves(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield key, value


def _yaml(value: object) -> str:
    if isinstance(value, str) and "/" in value:
        return "'" + value.replace("'", "''") + "'"
    said = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return said.removesuffix("\n").removesuffix("\n...")


def mesh_text(
    mesh: str,
    mesh_key: str | None,
    peers: Sequence[PeerEntry],
    relays: Sequence[RelayEntry] = (),
) -> str:
    """Return the peers.yaml of a mesh; without a mesh_key its nodes speak plain text."""
    head, line, _ = config_file("peers.yaml").read_text(encoding="utf-8").partition(ENTRIES)
    head = head.replace("mesh: example\n", f"mesh: {mesh}\n")
    if mesh_key is not None:
        head = head.replace(EVERYWHERE, OWN_FILE)
        head = head.replace("insecure: true\n", "# insecure: false\n")
        head = head.replace("# mesh_key: null\n", f"mesh_key: {mesh_key}\n")
    if relays:
        head = head.replace("# relays: []\n", f"relays:\n{_entries(relays)}")
    return head + line + _entries(peers)


def write_files(folder: Path, settings: str, peers: str) -> None:
    """Write node.yaml and peers.yaml into a folder; raise ConfigError or StateError if it fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise ConfigError(f"{folder} cannot be made: {because(fault)}.") from fault
    for name, text in (("node.yaml", settings), ("peers.yaml", peers)):
        put(folder / name, text, "folder", for_all=True)


def _entries(nodes: Sequence[PeerEntry | RelayEntry]) -> str:
    return "".join(f'  - {{name: {one.name}, address: "{one.address}"}}\n' for one in nodes)


def with_defaults(text: str, section: str, values: Mapping[str, object]) -> str:
    """Return a node.yaml whose comments show other defaults for some keys of a section."""
    head, start, rest = text.partition(f"\n{section}:\n")
    inside, end, after = rest.partition("\n\n")
    for key, value in values.items():
        said = yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip()
        shown = re.sub(rf"(?m)^  #{key}: .*$", "\0", inside)
        inside = shown.replace("\0", f"  #{key}: {said}")
    return head + start + inside + end + after


def with_policy(text: str, name: str) -> str:
    """Return a node.yaml with the keys of another policy, and the defaults that it brings."""
    return text if f"\n  name: {name}\n" in text else _with_section_of(text, name)


def _with_section_of(text: str, name: str) -> str:
    from fednode import registry

    kind = registry.policy(name)
    head = ("policy:", "  # docs/settings.md explains the keys (*).", f"  name: {name}")
    section = "\n".join([*head, *_keys(kind.config_type, "  ")])
    before, _, rest = text.partition("\npolicy:\n")
    rounds: Mapping[str, object] = getattr(kind, "rounds", {})  # as the settings are read
    text = f"{before}\n{section}\n\n{rest.partition(chr(10) * 2)[2]}"
    return with_defaults(with_defaults(text, "tuning", kind.tuning), "rounds", rounds)


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

    All other keys stay. Comments stay where a key stands as in the node.yaml that `init` writes; a
    section of another form is written anew. where: the file, for errors. Raise ConfigError if the
    model of the mesh is a file, and the node names none.
    """
    held = trees.read(text)[1] or {}
    whole = overlay(Source(where, held), tree).tree
    edited = text
    for key in dict.fromkeys(place[0] for place in SHARED):
        if _bare(held.get(key)) != _bare(whole.get(key)):
            edited = _with_part(edited, key, whole.get(key))
    return edited if _reads(edited, whole) else yaml.safe_dump(_bare(whole), sort_keys=False)


def _with_part(text: str, key: str, value: Any) -> str:
    """Return a node.yaml with another section, or another value of a key outside of sections."""
    held = trees.read(text)[1] or {}
    whole = {**held, key: value}
    if key == "policy":
        edited = with_values(_with_section_of(text, str(value["name"])), {key: value})
    elif isinstance(value, dict):
        was = held.get(key) or {}
        changed = {name: inner for name, inner in value.items() if was.get(name) != inner}
        gone = [place for place in SHARED if place[0] == key and trees.at(whole, place) is None]
        edited = with_keys(text, {key: {**changed, **{place[-1]: None for place in gone}}})
    else:
        edited = with_keys(text, {key: value})
    if _reads(edited, whole):
        return edited
    part = yaml.safe_dump({key: _bare(value)}, sort_keys=False)
    before = re.search(rf"(?m)^{key}:.*\n(?: .*\n)*", f"{text.rstrip()}\n")
    return text.replace(before[0], part, 1) if before else f"{text.rstrip()}\n\n{part}".lstrip()


def _reads(text: str, tree: Any) -> bool:
    """Tell whether a text is a valid file with these settings."""
    try:
        node, found = trees.read(text)
        trees.survey(node, Path("node.yaml"), (), {})
    except (yaml.YAMLError, ConfigError):
        return False
    return bool(_bare(found) == _bare(tree))


def _bare(tree: Any) -> Any:
    """Return a tree without keys that hold nothing."""
    if not isinstance(tree, dict):
        return tree
    bare = {key: _bare(value) for key, value in tree.items()}
    return {key: value for key, value in bare.items() if value not in (None, {})}
