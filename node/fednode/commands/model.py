"""`fednode check --model`: what one model takes, and which policies it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import click

from fednode.clip.settings import FOLDER, HUB, MINI, ModelSettings
from fednode.errors import ModelError

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


def policies(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the policies of fednode that a model takes, with their default settings."""
    has = {**row, "text": not row["text"]}
    return tuple(sorted(name for name, needs in NEEDS.items() if all(has[one] for one in needs)))


def show_model(name: str, as_json: bool) -> int:
    """Print what one model takes, with weights if the name brings them; return the exit code."""
    from fednode.clip import model as clip

    own_weights = name == MINI or name.startswith((FOLDER, HUB))
    try:
        loaded = clip.load(ModelSettings(name=name, device="cpu")) if own_weights else None
        row = clip.describe(name, loaded)
    except ModelError as fault:
        row = {"name": name, "fault": str(fault)}
        click.echo(json.dumps([row]) if as_json else f"{name}: {fault}")
        return 2
    row["policies"] = policies(row)
    click.echo(json.dumps([row]) if as_json else "\n".join(_lines(row)))
    return 0


def _lines(row: Mapping[str, Any]) -> list[str]:
    def said(yes: bool) -> str:
        return "yes" if yes else "no"

    visual = "yes" if row["has_class_token"] else "all but feddpt, which needs a ViT of open_clip"
    reads = row["reads"] or f"unknown: {row['tokenizer']}"
    return [
        f"{row['name']}: {row['parameters'] / 1e6:.0f} million weights, {row['features']} features",
        f"learned text prompts: {'no: ' + row['text'] if row['text'] else 'yes'}",
        f"deep text prompts: {said(row['deep'])}",
        f"visual prompts: {visual if row['visual'] else 'no'}",
        f"patches: {said(row['patches'])}",
        *([] if row["text"] else [f"tokens of a text: {reads}"]),
        f"policies: {', '.join(row['policies'])}",
        f"hand-written prompt (tuning.template: auto): {row['template']}",
    ]
