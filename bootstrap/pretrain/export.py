"""Write a checkpoint in the form that ships; node.clip.mini describes it and reads it back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from bootstrap.pretrain.checkpoint import load_checkpoint
from bootstrap.pretrain.model import CONFIG, resample
from node.clip.mini import EMBEDDING, expand
from node.errors import ConfigError, ModelError

POSITION = "visual.positional_embedding"
LARGEST = 20_000_000  # bytes: what we are willing to put into the package


def export(checkpoint: dict[str, Any], out: Path, image_size: int = 64) -> int:
    """Write config.json and model.safetensors; return their size in bytes."""
    patch = CONFIG["vision_cfg"]["patch_size"]
    if image_size <= 0 or image_size % patch:
        raise ConfigError(f"image size {image_size} is not a multiple of the patch size {patch}")
    weights = {k: v.float() for k, v in checkpoint["average"].items()}
    rows = weights.pop(EMBEDDING)
    weights[POSITION] = resample(weights[POSITION], image_size // patch)
    weights["logit_scale"] = weights["logit_scale"].clamp(max=4.605)
    tensors = {name: value.half().contiguous() for name, value in weights.items()}
    tensors["token_embedding.rows"] = rows.half().contiguous()
    tensors["token_embedding.index"] = checkpoint["index"].to(torch.int32).contiguous()
    tensors["token_embedding.fill"] = rows.mean(dim=0).half().contiguous()
    out.mkdir(parents=True, exist_ok=True)
    part = out / "model.safetensors.part"
    save_file(tensors, part, metadata={"format": "fednode-mini/1"})
    if part.stat().st_size > LARGEST:
        raise ModelError(f"{part} has {part.stat().st_size} bytes, more than {LARGEST}")
    part.chmod(0o644)  # safetensors writes files that only their owner can read
    config = {**config_for(image_size), "sha256": hashlib.sha256(part.read_bytes()).hexdigest()}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    part.replace(out / "model.safetensors")
    return sum((out / name).stat().st_size for name in ("config.json", "model.safetensors"))


def starting_point(path: Path) -> dict[str, Any]:
    """Return the weights and token rows that a new run may begin from, of a checkpoint or export.

    An exported folder holds the weights rounded to float16, and no optimizer state.
    """
    if not path.is_dir():
        return load_checkpoint(path)
    model, _, seen = expand(path)
    index = torch.tensor(sorted(seen))
    weights = dict(model.state_dict())
    weights[EMBEDDING] = weights[EMBEDDING][index]
    return {"average": weights, "index": index}


def config_for(image_size: int) -> dict[str, Any]:
    """Return the open_clip configuration of the model at an image size in pixels."""
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    config["vision_cfg"]["image_size"] = image_size
    config["preprocess_cfg"]["size"] = [image_size, image_size]
    return config
