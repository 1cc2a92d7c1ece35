"""`fednode import`: make a state directory of the prompts in a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fednode.api import load
from fednode.app.saved import ELSEWHERE, settings_text
from fednode.clip.settings import FOLDER, HUB, MINI
from fednode.core.policy import NodeContext
from fednode.core.types import Snapshot, Tensors
from fednode.data.base import BUILTIN
from fednode.data.folder import scan
from fednode.errors import ConfigError, ModelError, StateError
from fednode.settings.read import Settings, load_settings
from fednode.storage.files import put
from fednode.storage.runs import CLASSES, SETTINGS
from fednode.storage.store import Store
from fednode.terminal.paths import PATH
from fednode.terminal.progress import Shown


@click.command("import")
@click.argument("file", type=PATH)
@click.option("--state", type=PATH, required=True, help="The new state directory.")
@click.option("--config", type=PATH, help="node.yaml; for CoOp's checkpoints, which say nothing.")
@click.option("--set", "flags", multiple=True, help="section.key=value, after all files.")
@click.option("--classes", help="Class names, a,b,c [those in FILE].")
def import_(
    file: Path, state: Path, config: Path | None, flags: tuple[str, ...], classes: str | None
) -> None:
    """Create a state directory from the prompts in FILE: a file of `export`, or a CoOp checkpoint.

    `eval` and `predict` use the directory, and `start` continues from it as from round 0. Let all
    nodes of a mesh import the same file. `eval` measures on the images that --config or --set
    data.path=FOLDER names.
    """
    if not file.is_file():
        raise ConfigError(f"There is no file {file}: give one that `fednode export` wrote.")
    if file.suffix == ".safetensors":
        held = load(file)
        prompts, names = held.arrays, held.classes
        settings = _settings(held.settings, config, flags)
    else:
        from fednode.learn.share import read_coop

        prompts, names = read_coop(file), ()
        settings = load_settings(config, {}, flags)
    if classes:
        names = tuple(name.strip() for name in classes.split(","))
    if not names or not all(names):
        raise ConfigError(f"{file} names no classes: give them with --classes a,b,c.")
    settings = replace(settings, data=settings.data.placed(), model=settings.model.placed())
    if settings.data.path != BUILTIN:
        scan(Path(settings.data.path))  # a folder that is missing is said now, not by `eval`
    with Shown(f"{state} may not be complete: delete it.") as told:
        told("loading the model", 0, 0)
        _make(prompts, names, settings, state, file)
    click.echo(f"{state} holds the prompts of {file}, for {len(names)} classes.")
    if settings.data.path == BUILTIN:
        click.echo("No folder of images was given: `eval` takes --set data.path=FOLDER.")
    else:
        click.echo(f"`eval` measures them on the images in {settings.data.path}.")


def _settings(own: Settings, config: Path | None, flags: tuple[str, ...]) -> Settings:
    """Return the file's model, policy, tuning and window, and all else from node.yaml and flags.

    The file does not say from which checkpoint file or folder the weights came; node.yaml or flags
    say where they are here.
    """
    if config is None and not flags:
        return own
    more = load_settings(config, {}, flags)
    data = replace(more.data, window=more.data.window or own.data.window)
    model = own.model
    if model.name == FOLDER and more.model.name.startswith((FOLDER, HUB)):
        model = replace(model, name=more.model.name)
    elif model.name != MINI and model.pretrained is None:
        model = replace(model, pretrained=more.model.pretrained)
    return replace(more, model=model, policy=own.policy, tuning=own.tuning, data=data)


def _make(
    prompts: Tensors, names: tuple[str, ...], settings: Settings, state: Path, file: Path
) -> None:
    from fednode import registry
    from fednode.clip import backbone

    kind, config = settings.policy.kind, settings.policy.config
    objective = registry.objective(kind.name)(
        backbone.load(settings.model), settings.tuning, config
    )
    wanted, given = objective.initial(settings.seed).shapes, prompts.shapes
    if wanted != given:
        raise ModelError(
            f"{file} holds {_shown(given)}; {kind.name} with {settings.model.name} and these "
            f"settings of tuning has {_shown(wanted)}."
        )
    if (state / "journal.db").exists():
        raise StateError(f"{state} holds a node's state already: give another with --state.")
    context = NodeContext(
        name=settings.name or "node",
        peers=(),
        mesh="none",
        policy=kind.name,
        fingerprint="",
        seed=settings.seed,
        rounds=settings.rounds,
    )
    held = kind.start(config, context, prompts).state()
    store = Store(state)
    try:
        store.commit(Snapshot(replace(held, tuned=prompts), {}))
    finally:
        store.close()
    put(state / SETTINGS, settings_text(settings), ELSEWHERE)
    put(state / CLASSES, "".join(f"{name}\n" for name in names), ELSEWHERE)


def _shown(shapes: Any) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in sorted(shapes.items())) or "nothing"
