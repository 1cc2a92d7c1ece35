"""Read an experiment's file: strictly, with --smoke and --set put over it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from difflib import get_close_matches
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
NAMED: Final = 5
"""Most files that an error names."""


def load_experiment(path: Path, smoke: bool = False, flags: Sequence[str] = ()) -> Experiment:
    """Return the experiment of a file; raise ConfigError with every fault in one text."""
    if not path.is_file():
        raise ConfigError(_missing(path))
    source = read_yaml(path)
    tree, places = source.tree, dict(source.places)
    tree["methods"] = _methods(tree.get("methods"), path)
    _name_model(tree)
    if smoke:
        over = tree.get("smoke")
        if not isinstance(over, dict) or not over:
            raise ConfigError(f"{path} has no section `smoke`: say what --smoke makes smaller.")
        tree = _merged(tree, over)
        tree["methods"] = _methods(tree["methods"], path)
        if "rounds" in over:  # of every method
            tree["methods"] = [{**one, "rounds": None} for one in tree["methods"]]
    put_flags(tree, places, flags)
    _name_model(tree)
    found = checked(Experiment, Source(str(path), tree, places))
    faults = [fault for one in found.methods for fault in _method_faults(found, one, path)]
    if faults:
        raise ConfigError("\n".join(faults))
    return found


def _name_model(tree: dict[str, Any]) -> None:
    """Write a model in full that is given by its name for short (`model: ViT-B-16`)."""
    if isinstance(tree.get("model"), str):
        tree["model"] = {"name": tree["model"]}


def _missing(path: Path) -> str:
    """Return a sentence on a file that is not there, with those that it may have been."""
    folders = [sorted(folder.glob("*.yaml")) for folder in (path.parent, SHIPPED)]
    for files in folders:
        near = get_close_matches(path.stem, [one.stem for one in files], NAMED, 0.5)
        if near:
            return _holds(path, files, near)
    if not folders[-1]:
        return f"There is no file {path}: docs/experiments.md says how to write one."
    return _holds(path, folders[-1], [one.stem for one in folders[-1][:NAMED]])


def _holds(path: Path, files: Sequence[Path], named: Sequence[str]) -> str:
    more = "" if len(files) == len(named) else f", of {len(files)}"
    shown = ", ".join(f"{one}.yaml" for one in named)
    return f"There is no file {path}. {files[0].parent} holds {shown}{more}."


def settings_of(
    experiment: Experiment, method: MethodSettings, where: str, domains: Sequence[str] = ()
) -> Settings:
    """Return a method's settings as a node's; domains: of the scene, for policies that ask.

    A method that learns nothing has the settings of the control, which exchanges nothing.
    """
    policy: dict[str, Any] = dict(method.policy) if learns(method) else {"name": CONTROL}
    kind = registry.policy(str(policy.get("name", "")))
    if domains and any(one.name == "domains" for one in fields(kind.config_type)):
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
        "privacy": method.privacy,
        "guard": method.guard,
        "rounds": rounds,
        "model": asdict(experiment.model),
    }
    here = f"{where}, method {method.label!r}"
    parts = ("policy", "tuning", "privacy", "guard")
    places: dict[tuple[str, ...], str] = {(part,): here for part in parts}
    return node_settings(Source(where, tree, places))


def learns(method: MethodSettings) -> bool:
    """Tell whether a method is anything but zero-shot."""
    return method.policy.get("name") != ZERO_SHOT


def _methods(given: Any, path: Path) -> list[Tree]:
    """Let a method be its policy's name alone."""
    if not isinstance(given, list):
        raise ConfigError(f"{path}: methods is not a list; name one policy at least.")
    found: list[Tree] = []
    for one in given:
        if isinstance(one, str):
            found.append({"label": one, "policy": {"name": one}})
        elif isinstance(one, dict):
            policy = one.get("policy")
            named = {"name": policy} if isinstance(policy, str) else policy
            row = {**one, **({} if named is None else {"policy": named})}
            found += _grid(row, path) if "grid" in row else [row]
        else:
            raise ConfigError(f"{path}: methods holds {one!r}; name a policy, or give a section.")
    return found


def _grid(row: Tree, path: Path) -> list[Tree]:
    """Return a row for each combination of a method's grid: one entry of each of its mappings."""
    choices = row.pop("grid")
    label = row.get("label")
    sections = isinstance(choices, list) and all(
        isinstance(one, dict) and one and all(isinstance(over, dict) for over in one.values())
        for one in choices
    )
    if not sections or not choices:
        raise ConfigError(
            f"{path}, method {label!r}: grid is {choices!r}; give a list of mappings, each from a "
            "name to what it sets, e.g. [{low: {tuning: {lr: 0.01}}, high: {tuning: {lr: 0.1}}}]."
        )
    found: list[Tree] = []
    for chosen in itertools.product(*(one.items() for one in choices)):
        tree = row
        for _, over in chosen:
            tree = _merged(tree, over)
        names = (str(name) for name, _ in chosen)
        found.append(tree if label is None else {**tree, "label": ", ".join([str(label), *names])})
    return found


def _method_faults(experiment: Experiment, method: MethodSettings, path: Path) -> list[str]:
    # Domains are filled in from the data; any names do for checking the rest.
    stand_in = [] if experiment.protocol.kind == "base-to-new" else ["a", "b"]
    try:
        settings = settings_of(experiment, method, str(path), stand_in)
    except ConfigError as fault:
        return [str(fault)]
    unjudged = validation_fault(settings, experiment.data.validation)
    return [f"{path}, method {method.label!r}: {unjudged}"] if unjudged else []


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Return a tree with another put over it, section by section."""
    found = dict(under)
    for key, value in over.items():
        held = found.get(key)
        both = isinstance(held, dict) and isinstance(value, dict)
        found[key] = _merged(held, value) if both else value  # type: ignore[arg-type]
    return found
