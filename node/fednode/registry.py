"""Find policies by name: node/fednode/policies, and entry points of third parties.

A folder of node/fednode/policies is a policy. Its class stands in exchange.py, or the policy is
data in policies/averaging.py.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
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
OBJECTIVES = "fednode.objectives"


@cache
def _entries(group: str) -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of third parties; cached, because each search reads many files."""
    return tuple(metadata.entry_points(group=group))


@cache
def _folders() -> frozenset[str]:
    modules = pkgutil.iter_modules(fednode.policies.__path__)
    return frozenset(module.name for module in modules if module.ispkg)


def names() -> list[str]:
    """Return the names of all policies, sorted."""
    return sorted(_folders() | {entry.name for entry in _entries(GROUP)})


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
    module = importlib.import_module(f"fednode.policies.{name}.exchange")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(value, "name", None) == name
    ]
    return kind_of(classes[0])


def kind_of(offered: Any) -> PolicyKind:
    """Return what the registry offers for a class: the class itself, or a method's policy."""
    if isinstance(offered, type) and issubclass(offered, Method):
        return MethodPolicy(offered)
    kind: PolicyKind = offered
    return kind


def objective(name: str) -> Any:
    """Return the class that tunes a policy's prompts (fednode.learn.objective.Objective).

    It comes from a third party's entry point in OBJECTIVES under the policy's name, or from
    objective.py in the policy's folder. This imports torch. Raise ConfigError if there is none.
    """
    for entry in _entries(OBJECTIVES):
        if entry.name == name:
            return entry.load()
    if importlib.util.find_spec(f"{fednode.policies.__name__}.{name}") is None:
        raise ConfigError(
            f"policy {name!r} has no objective: its package needs an entry point {name!r} of the "
            f"group {OBJECTIVES} (docs/policies.md). tuning.kind: closed-form works without."
        )
    return importlib.import_module(f"fednode.policies.{name}.objective").Objective
