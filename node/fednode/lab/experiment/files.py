"""Read an experiment's file: strictly, with --smoke and --set put over it.

A method may be a class of the user's own: `policy: {name: module:Class}` in a file, where the
module lies beside the file or on Python's path, or the class itself in `fednode.experiment`.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from fednode import registry
from fednode.errors import ConfigError
from fednode.lab.experiment.settings import ZERO_SHOT, Experiment, MethodSettings
from fednode.settings.read import (
    Settings,
    Source,
    Tree,
    checked,
    put_flags,
    read_yaml,
    validation_fault,
)
from fednode.settings.read import settings_of as node_settings
from fednode.shipped import config_file

SHIPPED: Final = config_file("experiments")
CONTROL: Final = "local"
LEAST_IMAGES: Final = 4
"""privacy.least_images where a method does not say it: experiments have few images on purpose."""


def load_experiment(
    given: Path | Mapping[str, Any],
    smoke: bool = False,
    flags: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return the experiment of a file or of a mapping; raise ConfigError with every fault.

    more: further methods by label: a policy's name, a class, or a section `methods` of the file.
    """
    path, source = _source(given)
    tree, places = source.tree, dict(source.places)
    further = [
        {"label": label, **(row if isinstance(row, Mapping) else {"policy": row})}
        for label, row in (more or {}).items()
    ]
    _name_model(tree)
    over: Any = tree.get("smoke") if smoke else {}
    if smoke and not (isinstance(over, dict) and over):
        raise ConfigError(f"{path} has no section `smoke`: say what --smoke makes smaller.")
    tree = _merged(tree, over)
    listed = tree.get("methods", [] if further else None)
    methods = _methods([*listed, *further] if isinstance(listed, list) else listed, path)
    # Rounds of --smoke are those of every method.
    tree["methods"] = [{**row, "rounds": None} for row in methods] if "rounds" in over else methods
    put_flags(tree, places, flags)
    _name_model(tree)
    experiment = checked(Experiment, Source(str(path), tree, places))
    folder = str(path.parent.resolve())
    if folder not in sys.path and any(":" in _name(method) for method in experiment.methods):
        sys.path.append(folder)  # the processes of the experiment get this path, too
    faults = [
        fault for method in experiment.methods for fault in _method_faults(experiment, method, path)
    ]
    if faults:
        raise ConfigError("\n".join(faults))
    return experiment


def _source(given: Path | Mapping[str, Any]) -> tuple[Path, Source]:
    """Return where an experiment stands, and its keys as written; a mapping is copied."""
    if isinstance(given, Mapping):
        here = Path("experiment")
        return here, Source(str(here), {"title": str(here), **copy.deepcopy(dict(given))})
    if not given.is_file():
        raise ConfigError(
            f"There is no file {given}: docs/experiments.md says how to write one; those that ship "
            f"are in {SHIPPED}."
        )
    return given, read_yaml(given)


def _name_model(tree: dict[str, Any]) -> None:
    """Write a model in full that is given by its name for short (`model: ViT-B-16`)."""
    if isinstance(tree.get("model"), str):
        tree["model"] = {"name": tree["model"]}


def settings_of(
    experiment: Experiment, method: MethodSettings, where: str, domains: Sequence[str] = ()
) -> Settings:
    """Return a method's settings as a node's; domains: of the scene, for policies that ask.

    A method that learns nothing has the settings of the control, which exchanges nothing.
    """
    policy: dict[str, Any] = dict(method.policy) if learns(method) else {"name": CONTROL}
    if ":" in _name(method):
        _import_method(_name(method))
    kind = registry.policy(str(policy.get("name", "")))
    if domains and any(field.name == "domains" for field in fields(kind.config_type)):
        policy.setdefault("domains", list(domains))
    rounds = asdict(experiment.rounds_of(method))
    if "mode" in policy:
        rounds["mode"] = policy.pop("mode")
    elif "sync" in kind.modes:  # what comes out must not hang on delays
        rounds["mode"] = "sync"
    tree: Tree = {
        "policy": policy,
        # What nodes measure themselves is not used: the judge of the experiment measures.
        "tuning": {"evaluate_every": 0, **experiment.tuning, **method.tuning},
        "privacy": {"least_images": LEAST_IMAGES, **method.privacy},
        "guard": method.guard,
        "rounds": rounds,
        "model": asdict(experiment.model),
    }
    here = f"{where}, method {method.label!r}"
    parts = ("policy", "tuning", "privacy", "guard")
    places: dict[tuple[str, ...], str] = {(part,): here for part in parts}
    return node_settings(Source(where, tree, places))


def _name(method: MethodSettings) -> str:
    return str(method.policy.get("name", ""))


def _import_method(name: str) -> None:
    """Let the registry of this process have the class `module:Class`; raise ConfigError."""
    if name in registry.names():
        return
    module_name, _, class_name = name.partition(":")
    here = f"policy.name is {name!r}"
    try:
        module = importlib.import_module(module_name)
    except Exception as fault:  # of the user's code, which may raise anything
        if isinstance(fault, ModuleNotFoundError) and fault.name == module_name:
            raise ConfigError(
                f"{here}, and there is no module {module_name}: write {module_name}.py beside the "
                "experiment's file, or put its folder on PYTHONPATH."
            ) from None
        said = " ".join(str(fault).split())
        raise ConfigError(
            f"{here}, and {module_name} cannot be imported: {type(fault).__name__}: {said}"
        ) from fault
    if not hasattr(module, class_name):
        raise ConfigError(f"{here}, and {module_name} has no {class_name}.")
    registry.add(name, getattr(module, class_name))


def learns(method: MethodSettings) -> bool:
    """Tell whether a method is anything but zero-shot."""
    return method.policy.get("name") != ZERO_SHOT


def _methods(given: Any, path: Path) -> list[Tree]:
    """Let a method be its policy's name alone."""
    if not isinstance(given, list):
        raise ConfigError(f"{path}: methods is not a list; name one policy at least.")
    methods: list[Tree] = []
    for entry in given:
        if isinstance(entry, str):
            methods.append({"label": entry, "policy": {"name": entry}})
        elif isinstance(entry, dict):
            policy = entry.get("policy")
            named = {"name": policy} if isinstance(policy, str | type) else policy
            if isinstance(named, dict) and isinstance(named.get("name"), type):
                named = {**named, "name": _added(named["name"])}
            methods.append({**entry, **({} if named is None else {"policy": named})})
        else:
            raise ConfigError(f"{path}: methods holds {entry!r}; name a policy, or give a section.")
    return methods


def _added(offered: type) -> str:
    """Return the name under which the registry of this process has a class from now on."""
    name = f"{offered.__module__}:{offered.__qualname__}"
    registry.add(name, offered)
    return name


def tuning_of(experiment: Experiment, method: MethodSettings) -> dict[str, Any]:
    """Return all keys of `tuning` that a method runs with."""
    return asdict(_checked_settings(experiment, method, experiment.title).tuning)


def _checked_settings(experiment: Experiment, method: MethodSettings, where: str) -> Settings:
    """Return a method's settings; any names stand in for the domains, which the data have."""
    stand_in = [] if experiment.protocol.kind == "base-to-new" else ["a", "b"]
    return settings_of(experiment, method, where, stand_in)


def _method_faults(experiment: Experiment, method: MethodSettings, path: Path) -> list[str]:
    here = f"{path}, method {method.label!r}"
    try:
        settings = _checked_settings(experiment, method, str(path))
    except ConfigError as fault:
        return [str(fault) if str(path) in str(fault) else f"{here}: {fault}"]
    unjudged = validation_fault(settings, experiment.data.validation)
    return [f"{here}: {unjudged}"] if unjudged else []


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Return a tree with another put over it, section by section."""
    merged = dict(under)
    for key, value in over.items():
        held = merged.get(key)
        both = isinstance(held, dict) and isinstance(value, dict)
        merged[key] = _merged(held, value) if both else value  # type: ignore[arg-type]
    return merged
