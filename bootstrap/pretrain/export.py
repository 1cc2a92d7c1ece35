"""Write a checkpoint in the form that ships, and read that form back as an open_clip model.

`model.safetensors` holds open_clip's state dict in float16, except that the token embedding is
stored as the rows that training touched: `token_embedding.rows` [k, width],
`token_embedding.index` [k] int32 (their ids, sorted) and `token_embedding.fill` [width], the mean
of the rows, which stands for every other id.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from open_clip.model import CLIP
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from bootstrap.pretrain.model import CONFIG, VOCABULARY, resample
from node.errors import ConfigError, ModelError

EMBEDDING = "token_embedding.weight"
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
    (out / "config.json").write_text(json.dumps(config_for(image_size), indent=2) + "\n")
    part = out / "model.safetensors.part"
    save_file(tensors, part, metadata={"format": "fednode-mini/1"})
    if part.stat().st_size > LARGEST:
        raise ModelError(f"{part} has {part.stat().st_size} bytes, more than {LARGEST}")
    part.chmod(0o644)  # safetensors writes files that only their owner can read
    part.replace(out / "model.safetensors")
    return sum((out / name).stat().st_size for name in ("config.json", "model.safetensors"))


def config_for(image_size: int) -> dict[str, Any]:
    """Return the open_clip configuration of the model at an image size in pixels."""
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    config["vision_cfg"]["image_size"] = image_size
    config["preprocess_cfg"]["size"] = [image_size, image_size]
    return config


def expand(folder: Path) -> CLIP:
    """Return the exported model as a plain open_clip CLIP in float32, all 49,408 tokens."""
    try:
        config = json.loads((folder / "config.json").read_text())
        tensors = load_file(folder / "model.safetensors")
    except (OSError, ValueError, SafetensorError) as fault:
        raise ModelError(f"{folder} holds no exported model ({fault})") from fault
    missing = [
        name for name in ("rows", "index", "fill") if f"token_embedding.{name}" not in tensors
    ]
    if missing:
        raise ModelError(f"{folder}/model.safetensors lacks token_embedding.{missing[0]}")
    rows = tensors.pop("token_embedding.rows").float()
    index = tensors.pop("token_embedding.index").long()
    fill = tensors.pop("token_embedding.fill").float()
    table = fill.repeat(VOCABULARY, 1)
    table[index] = rows
    model = CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"])
    weights = {name: value.float() for name, value in tensors.items()}
    try:
        model.load_state_dict({**weights, EMBEDDING: table})
    except RuntimeError as fault:
        reason = " ".join(str(fault).split())[:200]
        raise ModelError(f"{folder}: the weights do not fit config.json ({reason})") from fault
    return model.eval()
