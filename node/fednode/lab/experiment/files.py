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
    POLICY,
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
LEAST_IMAGES: Final = 4
"""privacy.least_images where a method does not say it: experiments have few images on purpose."""
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
            tree["methods"] = [{**method, "rounds": None} for method in tree["methods"]]
    put_flags(tree, places, flags)
    _name_model(tree)
    experiment = checked(Experiment, Source(str(path), tree, places))
    faults = [
        fault for method in experiment.methods for fault in _method_faults(experiment, method, path)
    ]
    if faults:
        raise ConfigError("\n".join(faults))
    return experiment


def _name_model(tree: dict[str, Any]) -> None:
    """Write a model in full that is given by its name for short (`model: ViT-B-16`)."""
    if isinstance(tree.get("model"), str):
        tree["model"] = {"name": tree["model"]}


def _missing(path: Path) -> str:
    """Return a sentence on a file that is not there, with those that it may have been."""
    folders = [sorted(folder.glob("*.yaml")) for folder in (path.parent, SHIPPED)]
    for files in folders:
        near = get_close_matches(path.stem, [file.stem for file in files], NAMED, 0.5)
        if near:
            return _holds(path, files, near)
    if not folders[-1]:
        return f"There is no file {path}: docs/experiments.md says how to write one."
    return _holds(path, folders[-1], [file.stem for file in folders[-1][:NAMED]])


def _holds(path: Path, files: Sequence[Path], named: Sequence[str]) -> str:
    more = "" if len(files) == len(named) else f", of {len(files)}"
    shown = ", ".join(f"{stem}.yaml" for stem in named)
    return f"There is no file {path}. {files[0].parent} holds {shown}{more}."


def settings_of(
    experiment: Experiment, method: MethodSettings, where: str, domains: Sequence[str] = ()
) -> Settings:
    """Return a method's settings as a node's; domains: of the scene, for policies that ask.

    A method that learns nothing has the settings of the control, which exchanges nothing.
    """
    policy: dict[str, Any] = dict(method.policy) if learns(method) else {"name": CONTROL}
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
            named = {"name": policy} if isinstance(policy, str) else policy
            row = {**entry, **({} if named is None else {"policy": named})}
            row = _of_node(row, path) if "node" in row else row
            methods += _grid(row, path) if "grid" in row else [row]
        else:
            raise ConfigError(f"{path}: methods holds {entry!r}; name a policy, or give a section.")
    return methods


def _of_node(row: Tree, path: Path) -> Tree:
    """Return a row with the policy, tuning and rounds of a node.yaml under what it says itself.

    If the row names another policy, only the tuning and the rounds are those of the file.
    """
    name = row.pop("node")
    if not isinstance(name, str):
        raise ConfigError(f"{path}: node is {name!r}; give the path of a node.yaml.")
    tree = read_yaml(path.parent / name).tree
    under: Tree = {"tuning": tree.get("tuning") or {}}
    policy = tree.get("policy") or {"name": POLICY}
    if (row.get("policy") or policy).get("name") == policy["name"]:
        under["policy"] = policy
    rounds = (tree.get("rounds") or {}).get("max")
    return _merged({**under, **({"rounds": rounds} if rounds else {})}, row)


def _grid(row: Tree, path: Path) -> list[Tree]:
    """Return a row for each combination of a method's grid: one entry of each of its mappings."""
    choices = row.pop("grid")
    label = row.get("label")
    sections = isinstance(choices, list) and all(
        isinstance(choice, dict)
        and choice
        and all(isinstance(over, dict) for over in choice.values())
        for choice in choices
    )
    if not sections or not choices:
        raise ConfigError(
            f"{path}, method {label!r}: grid is {choices!r}; give a list of mappings, each from a "
            "name to what it sets, e.g. [{low: {tuning: {lr: 0.01}}, high: {tuning: {lr: 0.1}}}]."
        )
    rows: list[Tree] = []
    for chosen in itertools.product(*(choice.items() for choice in choices)):
        tree = row
        for _, over in chosen:
            tree = _merged(tree, over)
        names = (str(name) for name, _ in chosen)
        rows.append(tree if label is None else {**tree, "label": ", ".join([str(label), *names])})
    return rows


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
    merged = dict(under)
    for key, value in over.items():
        held = merged.get(key)
        both = isinstance(held, dict) and isinstance(value, dict)
        merged[key] = _merged(held, value) if both else value  # type: ignore[arg-type]
    return merged
