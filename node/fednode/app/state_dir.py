"""The content of a state directory that later commands read: settings, classes and prompts."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from fednode import units
from fednode.core.types import NO_ROUNDS, MergeCounts, Tensors
from fednode.errors import ConfigError, StateError
from fednode.settings.read import NAME, Settings, read_yaml, stored_settings, tree_of
from fednode.storage.disk import content_if_any, put
from fednode.storage.store import (
    BACKBONE,
    CLASSES,
    SETTINGS,
    earlier_runs,
    is_state,
    newest,
)

CONFIG: Final = Path("node.yaml")
PEERS: Final = Path("peers.yaml")
AGAIN: Final = "start the node once more on this directory to write it."
NAMED: Final = 5
"""Most state directories that an error names."""
ELSEWHERE: Final = "state directory with --state"
ROOT: Final = Path(".local/state/fednode")
"""Folder of state directories below the home folder: <mesh>/<node>."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The content of a state directory: prompts, their round, and the node's settings.

    backbone: fingerprint of the model that the prompts were tuned with; "" if it is not known.
    notes: sentences on newer rounds that are damaged. merge_counts: rounds, and rounds
    that merged a peer's prompts. rounds: the newest round; with guard.keep_best, `round` may be an
    earlier one.
    """

    folder: Path
    settings: Settings
    classes: tuple[str, ...]
    prompts: Tensors
    round: int
    backbone: str
    notes: tuple[str, ...] = ()
    merge_counts: MergeCounts = NO_ROUNDS
    rounds: int = 0

    def require_model(self, backbone: str) -> None:
        """Raise StateError if the loaded model is not the one that the prompts were tuned with."""
        was = self.backbone
        if was and backbone and was != backbone:
            raise StateError(
                f"The state directory {self.folder} was tuned with another model, or another "
                f"version of it (fingerprint {was[:12]}), than this node has ({backbone[:12]}). "
                "Prompts fit only the model that they were tuned with: give another directory with "
                f"--state, or move {self.folder} away, and the node begins at round 1."
            )


def remember(folder: Path, name: str, settings: Settings, classes: Sequence[str]) -> None:
    """Write a node's settings and classes into its state directory, for `eval` and `predict`."""
    placed = replace(settings, data=settings.data.placed(), model=settings.model.placed())
    own = replace(placed, name=name, state_dir=str(folder))
    put(folder / SETTINGS, settings_text(own), ELSEWHERE)
    put(folder / CLASSES, "".join(f"{name}\n" for name in classes), ELSEWHERE)


def settings_text(settings: Settings) -> str:
    """Return settings as YAML, without secrets."""
    open_ = replace(settings, proxy=None, page=replace(settings.page, token=None))
    # Convert to JSON's types: tuples become lists, which YAML can write.
    return yaml.safe_dump(json.loads(json.dumps(tree_of(open_))), sort_keys=False)


def recall(folder: Path, flags: Sequence[str] = ()) -> Tuned:
    """Return the content of a state directory; flags change its settings.

    Raise StateError if settings, classes or tuned prompts are missing.
    """
    (snapshot, facts), notes = newest(folder)
    held = {name: _text(folder, name) for name in (SETTINGS, CLASSES)}
    try:
        source = read_yaml(folder / SETTINGS)
    except ConfigError as fault:
        raise StateError(f"{str(fault).removesuffix('.')}: {AGAIN}") from None
    settings = stored_settings(source, AGAIN, flags)
    classes = tuple(held[CLASSES].splitlines())
    prompts, number = snapshot.used(settings.guard.keep_best)
    if not prompts:
        before = [f" Its last run lies in {past}." for past in earlier_runs(folder)[-1:]]
        raise StateError(
            f"{folder} holds no tuned prompts yet: let the node finish a round.{''.join(before)}"
        )
    return Tuned(
        folder=folder,
        settings=settings,
        classes=classes,
        prompts=prompts,
        round=number,
        backbone=facts.get(BACKBONE, ""),
        notes=notes,
        merge_counts=snapshot.merge_counts,
        rounds=snapshot.policy.round,
    )


def _text(folder: Path, name: str) -> str:
    """Return the text of a file that every start writes; raise StateError if it is damaged."""
    content = content_if_any(folder / name)
    if content is None:
        raise StateError(f"{folder} has no {name}: {AGAIN}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = content[: fault.start].count(b"\n") + 1
        raise StateError(f"{folder / name}, line {line}, is not UTF-8 text: {AGAIN}") from None


def find(state: Path | None) -> Path:
    """Return the state directory to use: the given one, this folder's, or the only one here.

    state: also the name of a node that ran here; peers.yaml in the current folder says in which
    mesh, if several meshes have a node of this name. Raise StateError if there is no such node, or
    several.
    """
    if state is None and (here := state_here()):
        return here
    root = Path.home() / ROOT
    name = "*" if state is None else state.name
    if state is not None and (state.exists() or str(state) != name or not NAME.fullmatch(name)):
        return state
    states = sorted(folder for folder in root.glob(f"*/{name}") if is_state(folder))
    if state is not None and len(states) > 1:
        mesh = _mesh_here()
        states = [folder for folder in states if folder.parent.name == mesh] or states
    if len(states) == 1:
        return states[0]
    if not states and state is None:
        raise StateError(f"No node has run here (nothing in {root}): give --state.")
    if not states:
        raise StateError(
            f"There is no folder {state}, and no node of this name has run here (nothing in "
            f"{root}/*/{state}): give --state."
        )
    shown = units.listed([*map(str, states)], NAMED)
    called = "" if state is None else f" called {state}"
    raise StateError(
        f"{len(states)} nodes{called} have run here: choose one with --state ({shown})."
    )


def state_here(mesh: str = "") -> Path | None:
    """Return the state directory of the node whose node.yaml lies in this folder; None if none.

    mesh: the only mesh that counts; "" for any. Raise StateError if node.yaml names a directory
    that is not there.
    """
    here = _mesh_here()
    if not CONFIG.is_file() or (mesh and here != mesh):
        return None
    try:
        tree = read_yaml(CONFIG).tree
    except ConfigError:
        return None  # whoever runs the node is told
    named = os.environ.get("FEDNODE_STATE_DIR") or tree.get("state_dir")
    if named and not Path(str(named)).is_dir():
        raise StateError(
            f"./{CONFIG} names the state directory {named}, and there is none: if it was moved, "
            "correct state_dir or give --state."
        )
    if named:
        return Path(str(named))
    usual = Path.home() / ROOT / here / str(tree.get("name") or "")
    return usual if here and tree.get("name") and is_state(usual) else None


def _mesh_here() -> str:
    """Return the mesh that peers.yaml in the current folder describes; "" if there is none."""
    try:
        return str(read_yaml(PEERS).tree.get("mesh", ""))
    except ConfigError:
        return ""
