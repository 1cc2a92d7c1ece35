"""The files that explain settings and commands, generated from the code.

    python -m tools.settings            writes
    python -m tools.settings --check    compares byte for byte; exit code 1 if files differ

The text below a field of a settings dataclass explains that field, and nothing else does. From
these texts, the types and the defaults come configs/node.yaml, configs/peers.yaml (`fednode init`
writes both), configs/schema/*.json for editors, and docs/settings.md. docs/commands.md comes from
the texts of the command line (tools/commands.py).

In a YAML file a key that must be given, or that most users change, has a value. Every other key is
a comment with its default, so that a file pins nothing that nobody chose: another policy brings its
own tuning.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import TypeAdapter

from fednode import registry
from fednode.app.node_yaml import EXAMPLES
from fednode.core.policy import PolicyKind
from fednode.core.rounds.averaging import AveragingConfig
from fednode.core.settings import MergeSettings
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import POLICY, Chosen, Settings
from tools import commands, generated

ROOT: Final = Path(__file__).resolve().parents[1]
CONFIGS: Final = ROOT / "configs"
MARK: Final = "(*)"
AGREED: Final = frozenset(
    {"model.name", "model.pretrained", "policy", "rounds.mode", "topology", "tuning.context_length"}
)
"""Keys, and whole sections, in which all nodes of a mesh must agree (fednode.app.plan.facts_of)."""
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
# The mesh: the nodes that this node greets at its start, the mesh key, relays. Members that are
# not listed make themselves known to each other.
"""
TABLE: Final = ("| key | default | values | what it does |", "|---|---|---|---|")
HEAD: Final = f"""\
# Settings

This page is generated from the code by `make settings`. [Operations](operations.md#settings) says
from which places a value comes, and how an editor shows these texts.
[configs/node.yaml](../configs/node.yaml) is the same list as a file to start from.

{MARK} marks a setting, or a section with all its settings, in which all nodes of a mesh must agree.
Nodes that differ refuse each other and name the difference. Times are in seconds.
"""


# The settings of a dataclass
@cache
def explained(kind: type) -> dict[str, str]:
    """Return the text below each field of a dataclass, for inherited fields, too."""
    found: dict[str, str] = {}
    for base in filter(is_dataclass, reversed(kind.__mro__)):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for above, below in pairwise(tree.body if isinstance(tree, ast.ClassDef) else ()):
            match above, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found


def summary(kind: type) -> str:
    """Return the first paragraph of a dataclass's docstring, on one line."""
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split())


@cache
def common() -> dict[str, str]:
    """Return the texts of the keys that policies have in common (fednode.core.rounds.method)."""
    texts = explained(AveragingConfig)
    return {**texts, "merge": summary(MergeSettings)}


@dataclass(frozen=True, slots=True)
class Setting:
    """One field: its key, type, explanation and default (MISSING if it must be given)."""

    name: str
    hint: Any
    text: str
    default: Any

    @property
    def section(self) -> type | None:
        """The dataclass behind the key if the key is a section, else None."""
        return self.hint if is_section(self.hint) else None


def is_section(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint) and hint is not Chosen


def settings_of(kind: type) -> Iterator[Setting]:
    """Yield the fields of a dataclass; a section's text is the summary of its class.

    Raise RuntimeError for a field without a text.
    """
    hints, texts = get_type_hints(kind), common() | explained(kind)
    for one in fields(kind):
        hint = hints[one.name]
        text = summary(hint) if is_section(hint) else texts.get(one.name, "")
        if not text:
            raise RuntimeError(f"{kind.__name__}.{one.name} has no text below it that explains it")
        yield Setting(one.name, hint, text, EXAMPLES.get(one.name, one.default))


def policies() -> dict[str, PolicyKind]:
    """Return the policies of this repository, by name; the built-in policy is the first."""
    kinds = {name: registry.policy(name) for name in registry.names()}
    own = {name: one for name, one in kinds.items() if one.__module__.startswith("fednode.")}
    return {POLICY: own[POLICY], **own}


def names_text() -> str:
    listed = ", ".join(policies())
    return (
        f"The policy: {listed}; docs/settings.md lists their settings. {POLICY} is built in; "
        "`fednode init` writes the recommended policy. Other packages can bring further policies "
        "(docs/methods.md)."
    )


def shown(value: Any) -> str:
    """Return a value as YAML on one line."""
    value = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


def marked(place: str, text: str) -> str:
    """Return a text with the mark in front if nodes must agree in this key or section."""
    return f"{MARK} {text}" if place in AGREED else text


# The YAML files
def node_file() -> str:
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
    start = f"{indent}# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=start,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def key(one: Setting, place: str = "", indent: str = "") -> list[str]:
    """Return the lines of one key with its default, its text first; a section with all its keys."""
    here = f"{place}{one.name}"
    section = policies()[POLICY].config_type if here == "policy" else one.section
    lines = [""] if section and not place else []
    lines += comment(marked(here, one.text), indent)
    if section:
        lines.append(f"{indent}{one.name}:")
        if here == "policy":
            lines += [*comment(names_text(), "  "), f"  name: {POLICY}"]
        for inner in settings_of(section):
            lines += key(inner, f"{here}.", f"{indent}  ")
        return lines
    sign = "" if here in LIVE or one.name in EXAMPLES else "#"
    return [*lines, f"{indent}{sign}{one.name}: {shown(one.default)}"]


# The page docs/settings.md
def page() -> str:
    (chosen,) = (one for one in settings_of(Settings) if one.name == "policy")
    named = cells("`policy.name`", f"`{POLICY}`", "text", names_text())
    each = (line for name in policies() for line in policy(name))
    parts = (
        HEAD.rstrip(),
        "## node.yaml",
        "\n".join((*TABLE, *rows(Settings))),
        "### policy",
        marked(chosen.name, chosen.text),
        "\n".join((*TABLE, named, *common_rows(), *each)),
        "### Defaults of tuning",
        "A policy may bring other defaults for the section `tuning`:",
        "\n".join(("| policy | defaults |", "|---|---|", *brought())),
        "## peers.yaml",
        summary(Peers),
        "\n".join((*TABLE, *rows(Peers), *rows(PeerEntry, "peers[]."))),
    )
    return "\n\n".join(parts) + "\n"


def policy(name: str) -> Iterator[str]:
    """Yield the rows of the settings that a policy alone has, below a row with its name."""
    kind = policies()[name]
    own = [one for one in settings_of(kind.config_type) if common().get(one.name) != one.text]
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
    """Yield the rows of a table of settings; sections follow, each below a row with its name."""
    for one in sorted(settings_of(kind), key=lambda one: one.section is not None):
        here = f"{place}{one.name}"
        if one.section:
            yield cells(f"**{here}**", "", "", marked(here, one.text))
            yield from rows(one.section, f"{here}.")
        elif here not in ("policy", "peers"):
            yield row(one, place)


def row(one: Setting, place: str) -> str:
    here = f"{place}{one.name}"
    mark = f" {MARK}" if here in AGREED else ""
    must = one.default is MISSING or one.name in EXAMPLES
    value = "must be given" if must else f"`{shown(one.default)}`"
    return cells(f"`{here}`{mark}", value, words(one.hint), one.text)


def cells(*texts: str) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def common_rows() -> Iterator[str]:
    """Yield a row for each key that policies have in common; the default of most comes first."""
    every = {name: list(settings_of(kind.config_type)) for name, kind in policies().items()}
    for key, text in common().items():
        having = {
            name: one
            for name, keys in every.items()
            for one in keys
            if one.name == key and common().get(key) == one.text
        }
        lacking = ", ".join(name for name in every if name not in having)
        text = f"{text} Not for {lacking}."
        if any(one.section for one in having.values()):
            yield cells(f"`policy.{key}`", "", "section", text)
            yield from rows(MergeSettings, "policy.merge.")
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
        return f"{'list of' if inside[-1] is Ellipsis else 'two'} {words(inside[0])}s"
    if origin is tuple:
        return "list of pairs of names"
    if hint == dict[str, str]:
        return "section of names"
    raise RuntimeError(f"there are no words for the values of type {hint}")


# JSON schemas for editors
def schema(kind: type, parts: Sequence[type] = ()) -> dict[str, Any]:
    """Return the JSON schema of a settings dataclass, with the texts as descriptions.

    parts: further dataclasses, whose schemas are added to the definitions.
    """
    tree = TypeAdapter(kind).json_schema()
    known = tree.setdefault("$defs", {})
    for part in parts:
        found = TypeAdapter(part).json_schema()
        known |= found.pop("$defs", {})
        known[part.__name__] = found
    describe(kind, tree)
    for part in (kind, *parts):
        for inner in sections(part):
            describe(inner, known[inner.__name__])
    return tree


def sections(kind: type) -> Iterator[type]:
    """Yield the dataclasses inside a dataclass, at any depth."""
    for hint in get_type_hints(kind).values():
        for one in (hint, *get_args(hint)):
            if is_section(one):
                yield one
                yield from sections(one)


def describe(kind: type, tree: dict[str, Any]) -> None:
    """Put the texts of a dataclass into its JSON schema, and remove pydantic's titles."""
    tree.pop("title", None)
    tree["description"] = summary(kind)
    for one in settings_of(kind):
        inside = tree["properties"][one.name]
        inside.pop("title", None)
        if one.section:  # without content: all its defaults
            inside = tree["properties"][one.name] = {"anyOf": [inside, {"type": "null"}]}
        inside["description"] = one.text


def node_schema() -> dict[str, Any]:
    """Return the schema of node.yaml; `policy` depends on its name."""
    kinds = {name: kind.config_type for name, kind in policies().items()}
    tree = schema(Settings, list(kinds.values()))
    for name, kind in kinds.items():
        part = tree["$defs"][kind.__name__]
        describe(kind, part)
        named = {"name": {"const": name, "description": names_text()}}
        part["properties"] = named | part.get("properties", {})
        part["required"] = [] if name == POLICY else ["name"]
    foreign = {
        "properties": {"name": {"type": "string", "not": {"enum": list(kinds)}}},
        "required": ["name"],
    }
    choices = [{"$ref": f"#/$defs/{kind.__name__}"} for kind in kinds.values()]
    policy = {key: tree["properties"]["policy"][key] for key in ("description", "type")}
    tree["properties"]["policy"] = {**policy, "anyOf": [*choices, foreign]}
    return tree


def generate() -> dict[Path, bytes]:
    """Return the content of every generated file; raise RuntimeError for a field without a text."""
    texts = {
        CONFIGS / "node.yaml": node_file(),
        CONFIGS / "peers.yaml": peers_file(),
        ROOT / "docs/commands.md": commands.page(),
        ROOT / "docs/settings.md": page(),
    }
    for name, tree in (("node", node_schema()), ("peers", schema(Peers))):
        draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        texts[CONFIGS / f"schema/{name}.json"] = json.dumps(draft | tree, indent=1) + "\n"
    return {path: text.encode() for path, text in texts.items()}


def main(arguments: list[str] | None = None) -> int:
    """Write or check the generated files; return the exit code."""
    hint = "not what the code says; run `make settings`"
    return generated.main(__doc__, arguments, generate, lambda: CONFIGS.glob("schema/*"), hint)


if __name__ == "__main__":
    sys.exit(main())
