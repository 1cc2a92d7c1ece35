"""`fednode export`: write tuned prompts to a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
import yaml

from fednode.api import Prompts, load
from fednode.app.state_dir import find
from fednode.clip.settings import FOLDER, MINI
from fednode.core.types import Tensors
from fednode.terminal.options import PATH
from fednode.terminal.progress import Shown

LAYOUTS = ("safetensors", "matrix")


@click.command()
@click.argument("to", type=PATH)
@click.option("--state", type=PATH, help="State directory, or name of a node [the only one here].")
@click.option(
    "--as", "layout", type=click.Choice(LAYOUTS), default="safetensors", show_default=True,
    help="fednode's own, or a matrix for open_clip.",
)  # fmt: skip
@click.option("--classes", help="matrix: class names, a,b,c [the node's own].")
@click.option("--all-classes", is_flag=True, help="matrix: the classes of all nodes (gda).")
def export(
    to: Path,
    state: Path | None,
    layout: str,
    classes: str | None,
    all_classes: bool,
) -> None:
    """Write the tuned prompts of a state directory to TO, for other programs or other nodes.

    Of class sums (gda) only the weights made of them are written: sums tell which images were used.
    """
    with Shown("Nothing was written.") as progress:
        progress("loading the model", 0, 0)
        prompts = load(find(state))
        from fednode.learn.export import write_arrays, write_matrix
        from fednode.policies.class_sums import ROWS

    if layout == "safetensors":
        facts = {**_facts(prompts), "classes": json.dumps(prompts.classes)}
        arrays = _weights(prompts) if ROWS in prompts.arrays else prompts.arrays
        write_arrays(arrays, facts, to)
    else:
        held = prompts.known if all_classes else prompts.classes
        named = [name.strip() for name in classes.split(",")] if classes else held
        weights, bias = prompts.affine(named)
        write_matrix(weights, bias, named, _facts(prompts), to)
    click.echo(f"wrote {to}")
    if layout == "matrix" and prompts.model == MINI:
        click.echo(
            f"{MINI} is no model of open_clip: use this matrix with image features of fednode "
            "(`fednode.load(...).image_features`), or tune a model of open_clip (model.name)."
        )


def _weights(prompts: Prompts) -> Tensors:
    """Return the weights of a classifier of class sums: what prediction needs, and no sums."""
    from fednode.policies.class_sums import PERSONAL, WEIGHTS

    every, own = prompts.known, prompts.classes
    weights = np.column_stack(prompts.affine(every))
    personal = np.zeros((len(every), 1 + weights.shape[1]), np.float32)
    at = [every.index(name) for name in own]
    personal[at] = np.column_stack([np.ones(len(own)), *prompts.affine(own)])
    return Tensors({WEIGHTS: weights, PERSONAL: personal}, every)


def _facts(prompts: Prompts) -> dict[str, str]:
    """Return the metadata of prompts, without paths, addresses and keys."""
    from fednode.clip import model as clip

    settings = prompts.settings
    model = clip.without_path(settings.model)
    whence = "a folder" if model.name == FOLDER else "its own weights"
    weights = model.pretrained or ("a file" if settings.model.pretrained else whence)
    kept = {"model": asdict(model), "policy": dict(settings.policy.written),
            "data": {"window": settings.data.window},
            "tuning": asdict(settings.tuning)}  # fmt: skip
    return {
        "settings": yaml.safe_dump(json.loads(json.dumps(kept)), sort_keys=False),
        "policy": settings.policy.name,
        "model": f"{model.name} ({weights})",
        "round": str(prompts.round),
    }
