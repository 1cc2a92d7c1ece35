"""JSON schemas of node.yaml and peers.yaml, for editors: pydantic's, with the texts added."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any, Final, get_args, get_type_hints

from pydantic import TypeAdapter

from fednode.settings.chosen import Chosen
from fednode.settings.peers import Peers
from fednode.settings.read import POLICY, Settings
from tools.settings.fields import names_text, policies, settings_of, summary

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def node_text() -> str:
    """Return configs/schema/node.json."""
    return text(node_schema())


def peers_text() -> str:
    """Return configs/schema/peers.json."""
    return text(schema(Peers))


def text(tree: dict[str, Any]) -> str:
    """Return a schema as JSON."""
    return json.dumps({"$schema": DRAFT, **tree}, indent=1) + "\n"


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
            if is_dataclass(one) and isinstance(one, type) and one is not Chosen:
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
