"""Tiny open_clip models with random weights: every structure, hardly any arithmetic."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import open_clip
import torch
from open_clip.model import CLIP, CustomTextCLIP
from open_clip.transform import PreprocessCfg, merge_preprocess_dict
from safetensors.torch import save_file

from fednode.clip import mini
from fednode.clip import model as frozen_clip
from fednode.clip.load import LoadedModel, byte_pairs
from fednode.clip.settings import ModelSettings

NAME: Final = "tiny-test-model"
VISION: Final[dict[str, Any]] = {
    "image_size": 32,
    "layers": 2,
    "width": 32,
    "head_width": 16,
    "patch_size": 16,
}
TEXT: Final[dict[str, Any]] = {
    "context_length": 24,
    "vocab_size": 49408,
    "width": 32,
    "heads": 2,
    "layers": 2,
}
EMBED: Final = 16
HYBRID: Final[dict[str, Any]] = {
    "version": 2,
    "embed_dim": EMBED,
    "vision_cfg": {**VISION, "image_size": 64, "no_ln_pre": True},
    "text_cfg": TEXT,
    "trunk_cfg": {
        "stem": 8,
        "base": [[1, 3, 1, 1, 8], [2, 3, 2, 2, 12]],
        "last": [[2, 5, 2, 2, 16], [1, 3, 2, 2, 16]],
        "head": 24,
        "classes": 7,
    },
    "preprocess_cfg": {"size": [64, 64], "mean": [0.5] * 3, "std": [0.5] * 3},
}
"""Of a hybrid vision transformer: a trunk of a few channels, 4 x 4 cells at 64 pixels."""


def clip(seed: int = 0, **text: Any) -> CLIP:
    """Return a plain CLIP; text: changes to the text tower's configuration."""
    torch.manual_seed(seed)
    model = CLIP(EMBED, dict(VISION), {**TEXT, **text})
    return model.eval().requires_grad_(False)


def frozen(model: Any, tokenizer: Any = None, **settings: Any) -> frozen_clip.FrozenClip:
    """Return a model without weights of a file, frozen on the CPU, with CLIP's tokenizer."""
    size = model.visual.image_size
    side = size if isinstance(size, int) else size[0]
    model.visual.preprocess_cfg = merge_preprocess_dict(PreprocessCfg(), {"size": side})
    known = byte_pairs() if tokenizer is None else tokenizer
    chosen = ModelSettings(**{"device": "cpu", **settings})
    return frozen_clip.freeze(LoadedModel(model, "tiny", known), chosen)


def custom(seed: int = 0, **text: Any) -> CustomTextCLIP:
    """Return a CLIP that keeps its text tower in a module of its own."""
    torch.manual_seed(seed)
    model = CustomTextCLIP(EMBED, dict(VISION), {**TEXT, **text})
    return model.eval().requires_grad_(False)


def hybrid(seed: int = 0) -> CLIP:
    """Return a CLIP whose vision transformer stands on a convolutional trunk."""
    torch.manual_seed(seed)
    model = mini.create(HYBRID)
    for name, parameter in model.visual.conv1.named_parameters():
        if name.endswith("bias") or name == "names":
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval().requires_grad_(False)


def save(folder: Path, model: CLIP, rows: torch.Tensor) -> None:
    """Write a hybrid model as the embedded one ships; rows: ids that pretraining touched."""
    state, index = dict(model.state_dict()), torch.unique(rows)  # sorted
    known = state.pop(mini.EMBEDDING)[index]
    state |= {"token_embedding.rows": known, "token_embedding.fill": known.mean(dim=0)}
    tensors = {name: value.half().contiguous() for name, value in state.items()}
    tensors["token_embedding.index"] = index.to(torch.int32)
    save_file(tensors, folder / "model.safetensors")
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps({**HYBRID, "sha256": digest}))


def register(folder: Path, text: dict[str, Any] | None = None, **vision: Any) -> str:
    """Make open_clip know a tiny architecture by name; return the name."""
    texts = {**TEXT, **(text or {})}
    config = {"embed_dim": EMBED, "vision_cfg": {**VISION, **vision}, "text_cfg": texts}
    path = folder / f"{NAME}.json"
    path.write_text(json.dumps(config))
    open_clip.add_model_config(path)
    return NAME
