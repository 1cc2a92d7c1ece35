"""`fednode export`: write tuned prompts to a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
import yaml

from fednode.api import Prompts, load
from fednode.app.saved import find
from fednode.clip.settings import FOLDER, MINI
from fednode.terminal.paths import PATH
from fednode.terminal.progress import Shown

LAYOUTS = ("safetensors", "coop", "matrix")


@click.command()
@click.argument("to", type=PATH)
@click.option("--state", type=PATH, help="State directory, or name of a node [the only one here].")
@click.option(
    "--as", "layout", type=click.Choice(LAYOUTS), default="safetensors", show_default=True,
    help="fednode's own, CoOp's checkpoint (TO is a folder), or a matrix for open_clip.",
)  # fmt: skip
@click.option("--classes", help="matrix: class names, a,b,c [the node's own].")
@click.option("--all-classes", is_flag=True, help="matrix: the classes of all nodes (gda).")
def export(
    to: Path, state: Path | None, layout: str, classes: str | None, all_classes: bool
) -> None:
    """Write the tuned prompts of a state directory to TO, for other programs or other nodes."""
    with Shown("Nothing was written.") as told:
        told("loading the model", 0, 0)
        prompts = load(find(state))
        from fednode.learn import share

    if layout == "coop":
        click.echo(f"wrote {share.write_coop(prompts.arrays, prompts.round, to)}")
        return
    if layout == "safetensors":
        facts = {**_facts(prompts), "classes": json.dumps(prompts.classes)}
        share.write_arrays(prompts.arrays, facts, to)
    else:
        held = prompts.known if all_classes else prompts.classes
        named = [name.strip() for name in classes.split(",")] if classes else held
        weights, bias = prompts.affine(named)
        texts = share.as_texts(weights, bias)
        if texts is None:
            share.write_affine(weights, bias, named, _facts(prompts), to)
        else:
            share.write_matrix(*texts, named, _facts(prompts), to)
    click.echo(f"wrote {to}")
    if layout == "matrix" and prompts.model == MINI:
        click.echo(
            f"{MINI} is no model of open_clip: use this matrix with image features of fednode "
            "(`fednode.load(...).image_features`), or tune a model of open_clip (model.name)."
        )


def _facts(prompts: Prompts) -> dict[str, str]:
    """Return the metadata of prompts, without paths, addresses and keys."""
    from fednode.clip import backbone

    settings = prompts.settings
    model = backbone.without_path(settings.model)
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
