"""`fednode export`: write tuned prompts to a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
import yaml

from fednode.api import Prompts, load
from fednode.app.saved import find
from fednode.clip.settings import MINI
from fednode.terminal.paths import PATH

LAYOUTS = ("safetensors", "coop", "matrix")


@click.command()
@click.argument("to", type=PATH)
@click.option("--state", type=PATH, help="State directory, or name of a node [the only one here].")
@click.option(
    "--as", "layout", type=click.Choice(LAYOUTS), default="safetensors", show_default=True,
    help="fednode's own, CoOp's checkpoint (TO is a folder), or open_clip text features.",
)  # fmt: skip
@click.option("--classes", help="matrix: class names, a,b,c [the node's own].")
def export(to: Path, state: Path | None, layout: str, classes: str | None) -> None:
    """Write the tuned prompts of a state directory to TO, for other programs or other nodes."""
    prompts = load(find(state))
    from fednode.learn import share

    if layout == "coop":
        click.echo(f"wrote {share.write_coop(prompts.arrays, prompts.round, to)}")
        return
    if layout == "safetensors":
        facts = {**_facts(prompts), "classes": json.dumps(prompts.classes)}
        share.write_arrays(prompts.arrays, facts, to)
    else:
        named = [name.strip() for name in classes.split(",")] if classes else prompts.classes
        features, scale = prompts.text_features(named)
        share.write_matrix(features, scale, named, _facts(prompts), to)
    click.echo(f"wrote {to}")
    if layout == "matrix" and prompts.model == MINI:
        click.echo(
            f"{MINI} is no model of open_clip: use this matrix with image features of fednode "
            "(`fednode.load(...).image_features`), or tune a model of open_clip (model.name)."
        )


def _facts(prompts: Prompts) -> dict[str, str]:
    """Return the metadata of prompts, without paths, addresses and keys."""
    settings = prompts.settings
    kept = {"model": asdict(settings.model), "policy": dict(settings.policy.written),
            "data": {"window": settings.data.window},
            "tuning": asdict(settings.tuning)}  # fmt: skip
    return {
        "settings": yaml.safe_dump(json.loads(json.dumps(kept)), sort_keys=False),
        "policy": settings.policy.name,
        "model": f"{settings.model.name} ({settings.model.pretrained or 'its own weights'})",
        "round": str(prompts.round),
    }
