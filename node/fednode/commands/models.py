"""`fednode models`: list what every architecture of open_clip takes; nothing is downloaded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from fednode.clip.settings import FOLDER, HUB, MINI, ModelSettings
from fednode.errors import ConfigError, ModelError
from fednode.terminal.formats import format_option
from fednode.terminal.progress import Shown

if TYPE_CHECKING:
    from fednode.clip.survey import Surveyed

HEADS: Final = ("model", "weights", "text", "deep", "visual", "patches", "features", "reads",
                "name")  # fmt: skip
LEGEND: Final = (
    "weights: millions. text: learned text prompts; deep: also deep ones (PLAN, FedMaPLe). visual: "
    "visual prompts; part: not for Fed-DPT's weights of domains, because there is no class token. "
    "patches: FedOTP. reads: tokens of a text. name: tokens left for a class name behind 16 "
    "vectors, or half of what the model reads; ?: its tokenizer is not on this machine."
)
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("fedclip", "gda"), ()),
    **dict.fromkeys(("zerodfl", "local", "promptfl", "fedtpg", "fedpgp", "diprompt"), ("text",)),
    **dict.fromkeys(("fedmaple", "plan"), ("text", "deep", "visual")),
    "feddpt": ("text", "visual", "asks"),
    "fedotp": ("text", "patches"),
    "trip": ("text", "visual"),
}
"""Columns of the table that a policy with its default settings needs."""


def policies(row: Surveyed) -> tuple[str, ...]:
    """Return the policies of fednode that a model takes, with their default settings."""
    has = {name: getattr(row, name) for name in ("deep", "visual", "asks", "patches")}
    has["text"] = not row.text
    return tuple(sorted(name for name, needs in NEEDS.items() if all(has[one] for one in needs)))


@click.command()
@click.argument("part", default="")
@format_option
def models(part: str, as_json: bool) -> int:
    """List the architectures of open_clip whose names hold PART, and what each takes.

    No weights are loaded and no network is used; the whole list takes about 20 seconds.
    """
    from fednode.clip import survey

    names = survey.architectures(part)
    if not names:
        raise ConfigError(
            f"No architecture of open_clip has {part!r} in its name: run `fednode models`."
        )
    known: dict[str, object] = {}
    rows = []
    with Shown("The list is not complete.") as told:
        for at, name in enumerate(names):
            told("examining models", at, len(names))
            rows.append(survey.architecture(name, known))  # type: ignore[arg-type]
    show(rows, as_json)
    if not as_json and len(rows) > 1:
        counted = {
            "learned text prompts": sum(not row.fault and not row.text for row in rows),
            "visual prompts": sum(row.visual for row in rows),
            "features": sum(row.features > 0 for row in rows),
        }
        said = ", ".join(f"{count} with {what}" for what, count in counted.items())
        click.echo(f"{len(rows)} models: {said}.")
    return 0


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
    show([row], as_json)
    return 2 if row.fault else 0


def show(rows: Iterable[Surveyed], as_json: bool) -> None:
    """Print what models take, as a table or as JSON, and why something is missing."""
    rows = list(rows)
    if as_json:
        click.echo(json.dumps([{**asdict(row), "policies": policies(row)} for row in rows]))
        return
    cells = [HEADS, *(_cells(row) for row in rows if not row.fault)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(HEADS))]
    for row in cells if len(cells) > 1 else ():
        padded = [
            text.ljust(width) if at == 0 else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(padded).rstrip())
    for one in rows:
        for why in (one.fault, one.text, one.tokenizer):
            if why and (len(rows) == 1 or why != one.tokenizer):
                click.echo(f"{one.name}: {why}")
    if len(rows) == 1 and not rows[0].fault:
        click.echo(f"policies: {', '.join(policies(rows[0]))}.")
        click.echo(f"hand-written prompt (tuning.template: auto): {rows[0].template}")
    if len(cells) > 1:
        click.echo(LEGEND)


def _cells(row: Surveyed) -> tuple[str, ...]:
    def said(yes: bool) -> str:
        return "yes" if yes else "-"

    visual = "yes" if row.asks else "part" if row.visual else "-"
    return (
        row.name,
        f"{row.parameters / 1e6:.0f}",
        said(not row.text),
        said(row.deep),
        visual,
        said(row.patches),
        str(row.features),
        str(row.reads),
        "?" if row.room is None else str(row.room),
    )
