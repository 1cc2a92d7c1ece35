"""What a model takes: learned texts, deep prompts, visual prompts, patches, features.

A model without weights is built on torch's meta device, which computes shapes alone. So every
architecture of open_clip is judged in seconds, by the towers that training uses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import open_clip
import torch

from fednode.clip import hub, sizes, sources, tokens
from fednode.clip.backbone import Backbone
from fednode.clip.settings import PLAIN
from fednode.clip.templates import template_of
from fednode.clip.text import unfit
from fednode.clip.timm_vision import tower_of
from fednode.clip.vision import VisionTower
from fednode.clip.whole import blocks_of, length_of
from fednode.errors import ModelError

VECTORS: Final = 16
"""Context vectors for which the room of a class name is told, or half of what the model reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """What one model takes.

    Attributes:
        fault: why it cannot be built or loaded; "" if it can
        parameters: number of weights
        text: "" if it takes learned text prompts, else why not
        deep: whether text prompts may be deep
        visual: whether it takes visual prompts
        asks: whether it has a class token whose attention Fed-DPT weighs domains by
        patches: whether it has features of patches
        features: width of its features; 0: none
        reads: tokens of a text
        room: tokens left for a class name behind VECTORS vectors; None if the tokenizer is unknown
        tokenizer: "" if its tokenizer is here, else why not
        template: the hand-written prompt of its authors
    """

    name: str
    fault: str = ""
    parameters: int = 0
    text: str = ""
    deep: bool = False
    visual: bool = False
    asks: bool = False
    patches: bool = False
    features: int = 0
    reads: int = 0
    room: int | None = None
    tokenizer: str = ""
    template: str = PLAIN


def architectures() -> list[str]:
    """Return the names of open_clip's architectures."""
    names: list[str] = open_clip.list_models()
    return names


def architecture(name: str) -> Surveyed:
    """Return what an architecture of open_clip takes; nothing is downloaded."""
    config = open_clip.get_model_config(name)
    text = config["text_cfg"]
    try:
        with hub.offline(True), _silent(), sizes.given(text), torch.device("meta"):
            model = open_clip.create_model(name, device="meta", pretrained_text=False)
    except ModelError as fault:
        return Surveyed(name=name, fault=str(fault))
    with hub.offline(True), _silent():
        theirs, missing = sources.tokenizer_of(text)
    read = int(text.get("context_length", tokens.READ))
    judged = _judged(name, model, tower_of(model, name), theirs, missing, read)
    template = template_of(text)
    return replace(judged, features=int(config["embed_dim"]), template=template)


def loaded(frozen: Backbone, name: str) -> Surveyed:
    """Return what a loaded model takes."""
    missing = "" if frozen.tokenizer is not None else frozen.text.fault
    read = int(getattr(frozen.tokenizer, "context_length", None) or tokens.READ)
    judged = _judged(name, frozen.model, frozen.vision, frozen.tokenizer, missing, read)
    high, wide = frozen.vision.image_size
    found = frozen.encode_images(torch.zeros(1, 3, high, wide))
    return replace(judged, features=int(found.shape[-1]), template=frozen.template)


def _judged(
    name: str, model: Any, vision: VisionTower, theirs: Any, missing: str, read: int
) -> Surveyed:
    tower = getattr(model, "text", model)
    tokenizer: tokens.Tokenizer | None = None
    text = ""
    if not missing:
        try:
            tokenizer = tokens.tokenizer_of(theirs)
        except ModelError as fault:
            text = str(fault)
    text = text or unfit(model, tokenizer)
    reads = 0 if text else length_of(tower, read)
    taken = min(VECTORS, max(1, reads // 2)) + 1  # a full stop ends the text
    around = 0 if tokenizer is None else len(tokenizer.begin) + len(tokenizer.end)
    return Surveyed(
        name=name,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        text=text,
        deep=not text and bool(blocks_of(tower)),
        visual=vision.promptable,
        asks=vision.asks,
        patches=_has(lambda: vision.patches_shape),
        reads=reads,
        room=None if tokenizer is None or text else reads - around - taken,
        tokenizer=missing,
    )


def _has(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except ModelError:
        return False
    return True


class _silent:
    """Drop the records of libraries about models without weights and files that are not here."""

    def __enter__(self) -> None:
        self._before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)

    def __exit__(self, *_: object) -> None:
        logging.disable(self._before)
