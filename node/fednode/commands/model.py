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
    from fednode.clip.survey import Surveyed

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("fedclip", "gda"), ()),
    **dict.fromkeys(("zerodfl", "local", "promptfl", "fedtpg", "fedpgp", "diprompt"), ("text",)),
    **dict.fromkeys(("fedmaple", "plan"), ("text", "deep", "visual")),
    "feddpt": ("text", "visual", "asks"),
    "fedotp": ("text", "patches"),
}
"""Parts of a model that a policy with its default settings needs."""


def policies(row: Surveyed) -> tuple[str, ...]:
    """Return the policies of fednode that a model takes, with their default settings."""
    has = {name: getattr(row, name) for name in ("deep", "visual", "asks", "patches")}
    has["text"] = not row.text
    return tuple(sorted(name for name, needs in NEEDS.items() if all(has[one] for one in needs)))


def show_model(name: str, pretrained: str | None, as_json: bool) -> int:
    """Print what one model takes, with weights if the name brings them; return the exit code."""
    from fednode.clip import backbone, survey

    settings = ModelSettings(name=name, pretrained=pretrained, device="cpu")
    try:
        if pretrained is None and not name.startswith((FOLDER, HUB)) and name != MINI:
            if name not in survey.architectures():
                backbone.load(settings)  # says what is wrong with the name
            row = survey.architecture(name)
        else:
            row = survey.loaded(backbone.load(settings), name)
    except ModelError as fault:
        row = survey.Surveyed(name=name, fault=str(fault))
    if as_json:
        click.echo(json.dumps([{**asdict(row), "policies": policies(row)}]))
    else:
        click.echo("\n".join([f"{name}: {row.fault}"] if row.fault else _lines(row)))
    return 2 if row.fault else 0


def _lines(row: Surveyed) -> list[str]:
    """Return what a model takes, in words."""

    def said(yes: bool) -> str:
        return "yes" if yes else "no"

    visual = "yes" if row.asks else "all but feddpt, which needs a class token"
    lines = [
        f"{row.name}: {row.parameters / 1e6:.0f} million weights, {row.features} features",
        f"learned text prompts: {f'no: {row.text}' if row.text else 'yes'}",
        f"deep text prompts: {said(row.deep)}",
        f"visual prompts: {visual if row.visual else 'no'}",
        f"patches: {said(row.patches)}",
    ]
    if not row.text:
        room = f"unknown: {row.tokenizer}" if row.room is None else f"{row.room} tokens"
        lines += [
            f"tokens of a text: {row.reads}",
            # The context takes half of what the model reads, at most 16 vectors.
            f"left for a class name behind the longest context: {room}",
        ]
    return [
        *lines,
        f"policies: {', '.join(policies(row))}",
        f"hand-written prompt (tuning.template: auto): {row.template}",
    ]
