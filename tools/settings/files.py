"""The YAML files: every key, below the text that explains it.

A key that must be given, or that most users change, has a value. Every other key is a comment with
its default, so that a file pins nothing that nobody chose: another policy brings its own tuning.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, Final

from fednode.app.writing import EXAMPLES
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import POLICY, Settings
from tools.settings.fields import (
    Setting,
    marked,
    names_text,
    policies,
    settings_of,
    shown,
)

WIDTH: Final = 100
MESH: Final[Mapping[str, Any]] = {"mesh": "example", "insecure": True}
"""What configs/peers.yaml sets; the other keys stand there as comments."""
ENTRIES: Final = "".join(
    f'  - {{name: {name}, address: "127.0.0.1:{port}"}}\n'
    for name, port in (("a", 7101), ("b", 7102), ("c", 7103))
)
LIVE: Final = frozenset({"data.path", "model.name", "policy.name"})
"""Keys of node.yaml with a value; the other keys are comments."""
FIRST: Final = ("data", "model", "policy")
"""Sections at the top of node.yaml; the others follow in the order of the code."""
NODE_HEAD: Final = """\
# A key in a comment has its default. To change it, remove the # in front of the key.
# A later place overrides an earlier one: defaults, this file, FEDNODE_<SECTION>__<KEY>,
# --set section.key=value. FEDNODE_<SECTION>__<KEY>_FILE names a file with the value, for secrets.
# (*): all nodes of a mesh must agree, for a section in all its keys; nodes that differ refuse each
# other and name the difference.
"""
PEERS_HEAD: Final = """\
# The mesh, the same file for every node: `fednode start --peers peers.yaml --name a` is one.
"""


def node_file() -> str:
    """Return configs/node.yaml."""
    parts = {one.name: one for one in settings_of(Settings)}
    first = [line for name in FIRST for line in key(parts[name])]
    others = [line for name, one in parts.items() if name not in FIRST for line in key(one)]
    return NODE_HEAD + "\n".join([*first, "", *others]) + "\n"


def peers_file() -> str:
    """Return configs/peers.yaml: a mesh on loopback, with all other keys as comments."""
    settings = {one.name: one for one in settings_of(Peers)}
    peers = settings.pop("peers")
    lines: list[str] = []
    for name, one in settings.items():
        value = f"{name}: {shown(MESH.get(name, one.default))}"
        lines += ["", *comment(one.text, ""), value if name in MESH else f"# {value}"]
    lines += ["", *comment(peers.text, "")]
    for one in settings_of(PeerEntry):
        lines += comment(f"{one.name}: {one.text}", "")
    return PEERS_HEAD + "\n".join(lines) + "\npeers:\n" + ENTRIES


def comment(text: str, indent: str) -> list[str]:
    """Return a text as lines of a YAML comment."""
    start = f"{indent}# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=start,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def block(kind: type, place: str, indent: str) -> list[str]:
    """Return the lines of a section of YAML: each key with its default, below its text."""
    return [line for one in settings_of(kind) for line in key(one, place, indent)]


def key(one: Setting, place: str = "", indent: str = "") -> list[str]:
    """Return the lines of one key, its text first; a section with all its keys."""
    here = f"{place}{one.name}"
    top = not place and (one.section or here == "policy")
    lines = [*([""] if top else []), *comment(marked(here, one.text), indent)]
    if here == "policy":
        inside = block(policies()[POLICY].config_type, "policy.", "  ")
        return [*lines, "policy:", *comment(names_text(), "  "), f"  name: {POLICY}", *inside]
    if one.section:
        return [*lines, f"{indent}{one.name}:", *block(one.section, f"{here}.", f"{indent}  ")]
    sign = "" if here in LIVE or one.name in EXAMPLES else "#"
    return [*lines, f"{indent}{sign}{one.name}: {shown(one.default)}"]
