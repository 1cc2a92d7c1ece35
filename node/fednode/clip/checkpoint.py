"""Read a checkpoint file; if it does not fit a model, say why in one sentence before loading it.

A model whose weights come from a file is built without allocating or drawing random weights first.
A safetensors file in float32 is mapped, not read: processes that map it have it in memory once.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fednode.errors import ModelError

State = dict[str, torch.Tensor]
HEADER_MAX: Final = 8 << 20
"""Bytes of the names and shapes of a safetensors file; a model of 10,000 tensors needs 1 MiB."""
INFLATED_MAX: Final = 1 << 20
"""Bytes by which an archive of torch may grow when it is read; torch compresses nothing."""
OPENAI_EXTRAS: Final = ("input_resolution", "context_length", "vocab_size")
# Left over from older versions of open_clip and transformers; today's models have no such entries.
IGNORED: Final = ("text.transformer.embeddings.position_ids", "attn_mask")


def read(path: Path) -> tuple[State, bool]:
    """Return a file's tensors by name, and whether they are OpenAI's (which use QuickGELU).

    Reads .safetensors, and files that torch.load accepts with weights_only, so no file can run
    code. A training checkpoint's "state_dict" and the prefix of data-parallel training are
    unwrapped.
    """
    content = _load(path)
    if not isinstance(content, Mapping):
        raise ModelError(f"{path} holds a {type(content).__name__}, not a state dict of tensors.")
    inside = content.get("state_dict", content)
    named = dict(inside) if isinstance(inside, Mapping) else {}
    openai = all(name in named for name in OPENAI_EXTRAS)
    state = {
        str(name).removeprefix("module."): value
        for name, value in named.items()
        if _plain(value) and name not in OPENAI_EXTRAS
    }
    if not state:
        raise ModelError(f"{path} holds no tensors: it is not a checkpoint of a model.")
    return state, openai


def _load(path: Path) -> Any:
    if not path.is_file():
        raise ModelError(f"There is no checkpoint file {path}: correct model.pretrained.")
    if path.suffix != ".safetensors":
        return load_weights(path)
    try:
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        if HEADER_MAX < header < path.stat().st_size:
            raise ModelError(
                f"{path} names its tensors in {header >> 20} MiB, and no model needs more than "
                f"{HEADER_MAX >> 20} MiB: fetch the file again."
            )
        return load_file(path)
    except (OSError, SafetensorError) as fault:
        raise ModelError(
            f"{path} is no safetensors file, or a damaged one: fetch the file again."
        ) from fault


def load_weights(path: Path) -> Any:
    """Return what torch.load reads from a file with weights_only, so no file can run code.

    Raise ModelError for any other file; torch's error is its cause. torch's warnings are
    suppressed, because they are about its own calls and source lines.
    """
    try:
        inflated = _inflated(path)
    except (OSError, zipfile.BadZipFile):
        inflated = 0  # torch says what is wrong
    if inflated > path.stat().st_size + INFLATED_MAX:
        raise ModelError(
            f"{path} grows to {inflated >> 20} MiB when it is read, and torch compresses nothing: "
            "fetch the file again."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as fault:
        raise ModelError(f"{path} cannot be read: {fault.strerror}.") from fault
    except Exception as fault:
        # torch.load raises errors of many types on damaged or refused files; one message fits them
        # all.
        if "TorchScript" in str(fault):
            raise ModelError(
                f"{path} is a TorchScript archive, which can hold code: save its state_dict() with "
                "torch.save or as .safetensors and give that file."
            ) from fault
        raise ModelError(
            f"{path} cannot be read as a file of weights only: it is damaged, of another kind, or "
            "holds Python objects, which can run code. Save a state_dict() with torch.save or as "
            ".safetensors and give that file."
        ) from fault


def _inflated(path: Path) -> int:
    """Return the bytes of what an archive of torch holds; 0 for other files."""
    if not zipfile.is_zipfile(path):
        return 0
    with zipfile.ZipFile(path) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def _plain(value: object) -> bool:
    """Tell whether a value is a tensor that can be a model's weight: dense, real, not quantized."""
    if not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and not (value.is_complex() or value.is_quantized)


def put(model: nn.Module, state: State, path: Path, name: str) -> None:
    """Load a state dict into an open_clip model in float32; raise ModelError if it does not fit."""
    state = convert_state_dict(model, state)
    if "positional_embedding" in state and not hasattr(model, "positional_embedding"):
        state = convert_to_custom_text_state_dict(state)
    expected = model.state_dict()
    for scalar in ("logit_scale", "logit_bias"):
        if scalar in state and scalar in expected:
            state[scalar] = state[scalar].reshape(expected[scalar].shape)
    state = {key: value.float() for key, value in state.items() if key not in IGNORED}
    wrong = _difference(expected, state)
    if wrong:
        raise ModelError(
            f"{path} is a checkpoint of another architecture than {name}: {wrong}; set model.name "
            "to the architecture that the file was made with."
        )
    broken = [key for key, value in state.items() if not torch.isfinite(value).all()]
    if broken:
        raise ModelError(
            f"{path} is damaged: {broken[0]} holds values that are not finite (so do "
            f"{len(broken) - 1} other tensors); fetch the file again."
        )
    model.load_state_dict(state, assign=True)


def build(make: Callable[[str], nn.Module], fill: Callable[[nn.Module], Any]) -> nn.Module:
    """Return a model that `make` builds on a device and `fill` gives its weights.

    The model is built without memory for weights and then filled. If tensors other than causal
    masks remain empty, because no state dict holds them, the model is built again in memory.
    """
    with torch.device("meta"):
        model = make("meta")
    fill(model)
    for module in model.modules():
        mask: Any = getattr(module, "attn_mask", None)
        if mask is not None and mask.is_meta:
            module.attn_mask = torch.full(mask.shape, -torch.inf).triu_(1)
    if any(array.is_meta for array in (*model.parameters(), *model.buffers())):
        model = make("cpu")
        fill(model)
    return model


def _difference(expected: Mapping[str, torch.Tensor], state: State) -> str:
    for key, value in expected.items():
        if key in state and state[key].shape != value.shape:
            return f"{key} is {list(state[key].shape)} in the file and {list(value.shape)} in it"
    missing = [key for key in expected if key not in state]
    if missing:
        return f"the file lacks {missing[0]} (and {len(missing) - 1} more of {len(expected)})"
    unknown = [key for key in state if key not in expected]
    return f"the file has {unknown[0]}, which it has not" if unknown else ""
