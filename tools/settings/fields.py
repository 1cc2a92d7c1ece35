"""Settings as their dataclasses say: names, types, texts and defaults."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final, get_type_hints

import yaml

from fednode import registry
from fednode.app.writing import EXAMPLES
from fednode.core.policy import PolicyKind
from fednode.core.rounds.averaging import AveragingConfig
from fednode.core.settings import MergeSettings
from fednode.settings.chosen import Chosen
from fednode.settings.read import POLICY

MARK: Final = "(*)"
AGREED: Final = frozenset(
    {"model.name", "model.pretrained", "policy", "rounds.mode", "topology", "tuning.context_length"}
)
"""Keys, and whole sections, in which all nodes of a mesh must agree (fednode.app.plan.facts_of)."""


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
    """Return the texts of the keys that policies have in common (fednode.core.rounds.settings)."""
    texts = explained(AveragingConfig)
    return {**texts, "merge": summary(MergeSettings)}


def is_common(one: Setting) -> bool:
    """Tell whether a key of a policy is one that policies have in common."""
    return common().get(one.name) == one.text


@dataclass(frozen=True, slots=True)
class Setting:
    """One field: its key, type, explanation and default (MISSING if it must be given).

    section: the dataclass of its own settings; None for a plain value.
    """

    name: str
    hint: Any
    text: str
    default: Any

    @property
    def section(self) -> type | None:
        """The dataclass behind the key if the key is a section, else None."""
        known = is_dataclass(self.hint) and isinstance(self.hint, type) and self.hint is not Chosen
        return self.hint if known else None


def settings_of(kind: type) -> Iterator[Setting]:
    """Yield the fields of a dataclass; a section's text is the summary of its class.

    Raise RuntimeError for a field without a text.
    """
    hints, texts = get_type_hints(kind), explained(kind)
    for one in fields(kind):
        hint = hints[one.name]
        text = (
            summary(hint)
            if isinstance(hint, type) and is_dataclass(hint) and hint is not Chosen
            else texts.get(one.name) or common().get(one.name, "")
        )
        if not text:
            raise RuntimeError(f"{kind.__name__}.{one.name} has no text below it that explains it")
        yield Setting(one.name, hint, text, EXAMPLES.get(one.name, one.default))


def policies() -> dict[str, PolicyKind]:
    """Return the policies of this repository, by name; the built-in policy is the first."""
    kinds = {name: registry.policy(name) for name in registry.names()}
    own = {name: one for name, one in kinds.items() if one.__module__.startswith("fednode.")}
    return {POLICY: own[POLICY], **own}


def names_text() -> str:
    """Return the explanation of policy.name."""
    listed = ", ".join(policies())
    return (
        f"The policy: {listed}; docs/settings.md lists their settings. {POLICY} is built in; "
        "`fednode init` writes the recommended policy. Other packages can bring further policies "
        "(docs/policies.md)."
    )


def shown(value: Any) -> str:
    """Return a value as YAML on one line."""
    value = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


def marked(place: str, text: str) -> str:
    """Return a text with the mark in front if nodes must agree in this key or section."""
    return f"{MARK} {text}" if place in AGREED else text
