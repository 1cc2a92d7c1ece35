"""Where a model comes from: open_clip's architectures, a folder of files, or the hub.

    ViT-B-16              an architecture of open_clip; model.pretrained is a tag or a file
    local-dir:FOLDER      files as the hub has them: open_clip_config.json, weights, a tokenizer
    hf-hub:OWNER/NAME     such files, fetched from the hub once and then read from its cache

No code of a folder runs: weights are tensors alone, and a tokenizer is one that transformers has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import open_clip
from huggingface_hub import constants
from torch import nn

from fednode.clip import checkpoint, hub, sizes, templates, tokens
from fednode.clip.settings import FOLDER, HUB, MINI, PLAIN, ModelSettings
from fednode.core import foreign
from fednode.errors import ModelError

SAID_MAX: Final = 160
"""Characters of another library's explanation that a sentence takes over."""
CONFIG: Final = "open_clip_config.json"
CONFIG_MAX: Final = 1 << 20
"""Bytes of a configuration that are read; a model's has a few thousand."""
WEIGHTS: Final = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
    "open_clip_pytorch_model.pt",
    "model.safetensors",
    "pytorch_model.bin",
)
"""Names of a folder's weights, the first of them that exists."""
TOKENIZER: Final = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class Found:
    """A model as it was found.

    Attributes:
        tokenizer: open_clip's tokenizer; None if it cannot be had
        missing: then why, as half a sentence
        template: the hand-written prompt of the model's authors
    """

    model: Any
    tokenizer: Any
    label: str
    missing: str = ""
    template: str = PLAIN


def load(settings: ModelSettings) -> Found:
    """Return the model of the settings, whose name is not that of the embedded model.

    Raise ModelError that says what to change.
    """
    name = settings.name
    if not name.startswith((FOLDER, HUB)):
        model = _open_clip(settings)
        text = _config(name)["text_cfg"]
        tokenizer, missing = tokenizer_of(text)
        label = f"{name} ({Path(settings.pretrained or '').name})"
        return Found(model, tokenizer, label, missing, templates.template_of(text))
    if settings.pretrained is not None:
        raise ModelError(
            f"model.pretrained is {settings.pretrained!r}, and {name} brings its own weights: "
            "remove model.pretrained."
        )
    if name == FOLDER:
        raise ModelError(
            f"model.name is {name!r}, which names no folder: set it to {FOLDER}FOLDER, the folder "
            "on this machine that holds the model's files."
        )
    if name.startswith(FOLDER):
        return _of_folder(Path(name.removeprefix(FOLDER)).expanduser(), settings)
    return _of_folder(hub.folder(name.removeprefix(HUB), CONFIG, WEIGHTS, TOKENIZER), settings)


def untrained(name: str) -> Found:
    """Return an architecture of open_clip with random weights."""
    config = _config(name)
    if config is None:
        raise ModelError(f"There is no architecture {name!r} in open_clip.")
    with hub.without_records(), sizes.given(config["text_cfg"]):
        model = open_clip.create_model(name, pretrained=None, pretrained_text=False)
    tokenizer, missing = tokenizer_of(config["text_cfg"])
    return Found(model, tokenizer, f"{name} (random weights)", missing)


def _config(name: str) -> Any:
    return open_clip.get_model_config(name)


def _of_folder(folder: Path, settings: ModelSettings) -> Found:
    """Return the model of a folder; raise ModelError if a file is missing or does not fit."""
    name = settings.name
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise ModelError(
                f"{file} is neither a file nor a folder, so no model is read from {folder}: fetch "
                "the file again."
            )
    text = _text_of(folder, name)
    path = next((folder / file for file in WEIGHTS if (folder / file).is_file()), None)
    if path is None:
        raise ModelError(
            f"the folder {folder} has no weights of a model: put one of {', '.join(WEIGHTS)} into "
            "it."
        )
    state, _ = checkpoint.read(path)
    with hub.without_records(), hub.offline(True), sizes.given(text, folder):
        try:
            model = checkpoint.build(
                lambda device: open_clip.create_model(
                    f"{FOLDER}{folder}", load_weights=False, pretrained_text=False, device=device
                ),
                lambda made: checkpoint.put(made, state, path, name),
            )
        except ModelError:
            raise
        except Exception as fault:
            # Configurations fail in open_clip, timm and transformers in many ways.
            raise ModelError(
                f"{folder / CONFIG} describes no model that open_clip builds "
                f"({_said(fault)}): fetch the file again."
            ) from fault
    tokenizer, missing = tokenizer_of(text, folder)
    template = templates.template_of(text)
    return Found(model, tokenizer, settings.title, missing, template)


def _text_of(folder: Path, name: str) -> Mapping[str, Any]:
    """Return "text_cfg" of a folder's configuration."""
    path = folder / CONFIG
    try:
        with path.open("rb") as file:
            config = json.loads(file.read(CONFIG_MAX))["model_cfg"]
        text = {**config["text_cfg"]}
        _ = {**config["vision_cfg"]}
    except OSError as fault:
        raise ModelError(
            f"model.name is {name!r}, and {path} cannot be read ({fault.strerror}): download "
            f"{CONFIG}, the weights and the tokenizer of the model into one folder."
        ) from fault
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        raise ModelError(
            f"{path} is no configuration of open_clip, which has model_cfg with text_cfg and "
            "vision_cfg: fetch the file again."
        ) from fault
    return text


def tokenizer_of(text: Mapping[str, Any], folder: Path | None = None) -> tuple[Any, str]:
    """Return open_clip's tokenizer for a text tower, and why there is none; one of both is empty.

    text: "text_cfg" of the configuration. folder: of the model's files; a folder without a
    tokenizer's files is not completed from the network.
    """
    options = dict(text.get("tokenizer_kwargs", {}))
    read = int(text.get("context_length", tokens.READ))
    source = text.get("hf_tokenizer_name")
    if not source:
        if read == tokens.READ and not options:
            return byte_pairs(), ""
        return open_clip.tokenizer.SimpleTokenizer(context_length=read, **options), ""
    if folder is not None and not any(any(folder.glob(pattern)) for pattern in TOKENIZER):
        return None, f"its folder {folder} has no tokenizer ({', '.join(TOKENIZER)})"
    try:
        sizes.need(f"its tokenizer {source}")
    except ModelError as fault:
        return None, str(fault).rstrip(".")
    silent = "" if folder is not None else hub.silence()
    try:
        with hub.offline(folder is not None or bool(silent)):
            return open_clip.tokenizer.HFTokenizer(
                str(folder or source),
                context_length=read,
                tokenizer_mode=text.get("tokenizer_mode"),
                trust_remote_code=False,
                **options,
            ), ""
    except Exception as fault:
        # Tokenizers and the hub fail in many ways that fednode does not control.
        if silent:
            why = f"{constants.ENDPOINT} does not answer ({foreign.line(silent, SAID_MAX)})"
            return None, f"its tokenizer {source} is not on this machine, and {why}"
        return None, f"its tokenizer {folder or source} cannot be had ({_said(fault)})"


@cache
def byte_pairs() -> Any:
    """Return CLIP's tokenizer; reading its table takes tenths of a second."""
    return open_clip.tokenizer.SimpleTokenizer()


def _open_clip(settings: ModelSettings) -> nn.Module:
    """Return a model of open_clip with its weights."""
    name, source = settings.name, settings.pretrained
    config = _config(name)
    if config is None:
        raise ModelError(
            f"model.name is {name!r}, which is neither {MINI} nor one of the "
            f"{len(open_clip.list_models())} architectures of open_clip, such as ViT-B-16, nor "
            f"{FOLDER}FOLDER nor {HUB}OWNER/NAME."
        )
    if source is None:
        raise ModelError(
            f"model.pretrained is not set: name the weights of {name} by a tag of open_clip "
            "(openai, ...) or a checkpoint file."
        )
    tags = open_clip.list_pretrained_tags_by_model(name)
    if source not in tags:
        if not Path(source).is_file() and not Path(source).suffix:
            raise ModelError(
                f"model.pretrained is {source!r}, which is neither a file nor a tag of {name}; its "
                f"tags are {', '.join(tags) or 'none'}."
            )
        path = Path(source)
        state, openai = checkpoint.read(path)
        with hub.without_records(), sizes.given(config["text_cfg"]):
            return checkpoint.build(
                lambda device: open_clip.create_model(
                    name, device=device, force_quick_gelu=openai, pretrained_text=False
                ),
                lambda model: checkpoint.put(model, state, path, name),
            )
    return fetched(name, source)


def fetched(name: str, tag: str) -> nn.Module:
    """Return a model with the weights of a tag, from the hub or from its cache on this machine."""
    silent, text = hub.silence(), (_config(name) or {}).get("text_cfg", {})
    try:
        with hub.offline(bool(silent)), hub.without_records(), sizes.given(text):
            model: nn.Module = open_clip.create_model(name, pretrained=tag, weights_only=True)
    except ModelError:
        raise
    except Exception as fault:
        # The download and its cache fail in many ways that fednode does not control.
        what = f"the weights {tag!r} of {name}"
        remedy = "connect it to the network once, or give a checkpoint file as model.pretrained."
        if silent:
            raise ModelError(
                f"{what} are not on this machine, and {constants.ENDPOINT} does not answer "
                f"({foreign.line(silent, SAID_MAX)}): {remedy}"
            ) from fault
        raise ModelError(
            f"{what} cannot be had ({_said(fault)}): check the network, or give a checkpoint file "
            "as model.pretrained."
        ) from fault
    return model


def _said(fault: Exception) -> str:
    return f"{type(fault).__name__}: {foreign.line(' '.join(str(fault).split()), SAID_MAX)}"
