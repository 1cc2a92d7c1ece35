"""Find methods by name: node/fednode/policies, entry points of third parties, classes by value.

A file of node/fednode/policies is a method: the file's class of that name holds the exchange, and
the class's attribute `prompts` what is tuned. An entry point of the group `fednode.policies` names
a class of another package. An experiment adds classes for its own process (`add`).
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache
from importlib import metadata
from typing import Any

import fednode.policies
from fednode.conformance import NEAR, class_fault
from fednode.core.policy import PolicyKind
from fednode.errors import ConfigError

GROUP = "fednode.policies"
HELPERS = frozenset({"class_sums", "domains", "gaussian", "trust"})
"""Files of node/fednode/policies that are no methods."""
YOURS = (
    "For a class of yours write module:Class in an experiment's file; nodes need an installed "
    "package that has an entry point of the policy's name (docs/methods.md)."
)
_ADDED: dict[str, PolicyKind] = {}


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
    return sorted({*_modules(), *_ADDED, *(entry.name for entry in _entries(GROUP))})


def add(name: str, offered: Any) -> None:
    """Let this process find a class by a name; raise ConfigError if the class is no method."""
    _ADDED[name] = _foreign(name, offered)


def policy(name: str) -> PolicyKind:
    """Return the policy of a name; raise ConfigError if there is none."""
    if name in _ADDED:
        return _ADDED[name]
    entry = next((one for one in _entries(GROUP) if one.name == name), None)
    if entry is not None:
        return _of_entry(entry)
    if name not in _modules():
        near = difflib.get_close_matches(name, names(), 1, NEAR)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}. {YOURS}"
        raise ConfigError(f"policy.name is {name!r}, which is no policy: {hint}")
    return _method_class(name)


def _of_entry(entry: metadata.EntryPoint) -> PolicyKind:
    """Return the class that another package names; raise ConfigError if it is no such method."""
    name = entry.name
    if name in _modules():
        raise ConfigError(
            f"policy.name is {name!r}, a method of fednode, and an installed package brings one "
            f"of the same name ({entry.value}): uninstall it, or give its method another name."
        )
    try:
        kind = _foreign(name, entry.load())
    except ConfigError:
        raise
    except Exception as fault:  # of the author's code, which may raise anything
        said = " ".join(f"{type(fault).__name__}: {fault}".split())
        raise ConfigError(
            f"policy.name is {name!r}, and its class {entry.value} cannot be loaded ({said}): "
            "correct the entry point or the module, and install the package again."
        ) from fault
    if kind.name != name:
        raise ConfigError(
            f"policy.name is {name!r}, and the name of its class {entry.value} is {kind.name!r}: "
            "give the entry point and the class the same name."
        )
    return kind


def _method_class(name: str) -> PolicyKind:
    """Return the class of a method in node/fednode/policies."""
    module = importlib.import_module(f"fednode.policies.{name}")
    classes: list[PolicyKind] = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(value, "name", None) == name
    ]
    return classes[0]


def _foreign(name: str, offered: Any) -> PolicyKind:
    fault = class_fault(offered)
    if fault:
        raise ConfigError(f"policy.name is {name!r}: {fault}")
    kind: PolicyKind = offered
    return kind


def prompt_module(name: str) -> Any:
    """Return what builds the PromptModule of a method, from (clip, settings, config).

    It is the attribute `prompts` of the method's class.
    """
    return policy(name).prompts
