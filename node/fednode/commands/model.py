"""`fednode check --model`: what one model takes, and which policies it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from fednode.clip.settings import FOLDER, HUB, MINI, ModelSettings
from fednode.errors import ModelError

if TYPE_CHECKING:
    from fednode.clip.model import ModelCapabilities

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("fedclip", "gda", "zerodfl", "local", "promptfl", "fedtpg", "fedpgp", "diprompt"),
        ("text",),
    ),
    **dict.fromkeys(("fedmaple", "plan"), ("text", "deep", "visual")),
    "feddpt": ("text", "visual", "has_class_token"),
    "fedotp": ("text", "patches"),
}
"""Parts of a model that a policy with its default settings needs."""


def policies(row: ModelCapabilities) -> tuple[str, ...]:
    """Return the policies of fednode that a model takes, with their default settings."""
    has = {name: getattr(row, name) for name in ("deep", "visual", "has_class_token", "patches")}
    has["text"] = not row.text
    return tuple(sorted(name for name, needs in NEEDS.items() if all(has[one] for one in needs)))


def show_model(name: str, as_json: bool) -> int:
    """Print what one model takes, with weights if the name brings them; return the exit code."""
    from fednode.clip import model as clip

    own_weights = name == MINI or name.startswith((FOLDER, HUB))
    try:
        loaded = clip.load(ModelSettings(name=name, device="cpu")) if own_weights else None
        row = clip.describe(name, loaded)
    except ModelError as fault:
        row = clip.ModelCapabilities(name=name, fault=str(fault))
    if as_json:
        click.echo(json.dumps([{**asdict(row), "policies": policies(row)}]))
    else:
        click.echo("\n".join([f"{name}: {row.fault}"] if row.fault else _lines(row)))
    return 2 if row.fault else 0


def _lines(row: ModelCapabilities) -> list[str]:
    def said(yes: bool) -> str:
        return "yes" if yes else "no"

    visual = "yes" if row.has_class_token else "all but feddpt, which needs a ViT of open_clip"
    lines = [
        f"{row.name}: {row.parameters / 1e6:.0f} million weights, {row.features} features",
        f"learned text prompts: {f'no: {row.text}' if row.text else 'yes'}",
        f"deep text prompts: {said(row.deep)}",
        f"visual prompts: {visual if row.visual else 'no'}",
        f"patches: {said(row.patches)}",
    ]
    if not row.text:
        unknown = f"unknown: {row.tokenizer}"
        lines += [
            f"tokens of a text: {row.reads or unknown}",
            # The context takes half of what the model reads, at most 16 vectors.
            "left for a class name behind the longest context: "
            f"{unknown if row.tokens_left is None else f'{row.tokens_left} tokens'}",
        ]
    return [
        *lines,
        f"policies: {', '.join(policies(row))}",
        f"hand-written prompt (tuning.template: auto): {row.template}",
    ]
