"""Find methods by name: node/fednode/policies, and entry points of third parties.

A file of node/fednode/policies is a method: the file's class of that name holds the exchange, and
the class's attribute `prompts` what is tuned. Methods in folders (exchange.py, objective.py) are
not moved into one file yet.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache
from importlib import metadata
from typing import Any

import fednode.policies
from fednode.core.policy import PolicyKind
from fednode.core.rounds.kind import MethodPolicy
from fednode.core.rounds.method import Method
from fednode.errors import ConfigError
from fednode.policies import averaging

GROUP = "fednode.policies"
HELPERS = frozenset({"averaging", "domains"})
"""Files of node/fednode/policies that are no methods."""


@cache
def _entries(group: str) -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of third parties; cached, because each search reads many files."""
    return tuple(metadata.entry_points(group=group))


@cache
def _modules() -> frozenset[str]:
    modules = pkgutil.iter_modules(fednode.policies.__path__)
    return frozenset(module.name for module in modules) - HELPERS


def names() -> list[str]:
    """Return the names of all policies, sorted."""
    return sorted(_modules() | {entry.name for entry in _entries(GROUP)})


def policy(name: str) -> PolicyKind:
    """Return the policy of a name; raise ConfigError if there is none."""
    for entry in _entries(GROUP):
        if entry.name == name:
            return kind_of(entry.load())
    if name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}."
        raise ConfigError(f"policy.name is {name!r}, which is no policy: {hint}")
    if name in averaging.POLICIES:
        return averaging.POLICIES[name]
    return kind_of(_method_class(name))


def _method_class(name: str) -> Any:
    """Return the class of a method in node/fednode/policies."""
    module = importlib.import_module(f"fednode.policies.{name}")
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"fednode.policies.{name}.exchange")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(value, "name", None) == name
    ]
    return classes[0]


def kind_of(offered: Any) -> PolicyKind:
    """Return what the registry offers for a class: the class itself, or a method's policy."""
    if isinstance(offered, type) and issubclass(offered, Method):
        return MethodPolicy(offered)
    kind: PolicyKind = offered
    return kind


def prompt_module(name: str) -> Any:
    """Return what builds the PromptModule of a method, from (clip, settings, config).

    It is the attribute `prompts` of the method's class. Raise ConfigError if there is none.
    """
    kind = policy(name)
    prompts = getattr(getattr(kind, "method", kind), "prompts", None)
    if prompts is not None:
        return prompts
    if name in _modules():
        return importlib.import_module(f"fednode.policies.{name}.objective").Objective
    raise ConfigError(
        f"policy {name!r} does not say what it tunes: its class needs an attribute `prompts` "
        "(docs/objectives.md). tuning.kind: closed-form works without."
    )
