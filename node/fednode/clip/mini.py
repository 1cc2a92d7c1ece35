"""Read and write fednode-mini, the model that ships, as an open_clip CLIP.

Version 2 is a hybrid vision transformer: `visual` is open_clip's VisionTransformer, and a
convolutional trunk (node/fednode/clip/trunk.py) replaces its `conv1`. `config.json` describes the
trunk under "trunk_cfg". `positional_embedding` has a row for the class token, for each cell of the
grid, and for the trunk's concept token.

`model.safetensors` holds open_clip's state dict in float16. Of the token embedding it holds only
the rows that pretraining touched: `token_embedding.rows` [k, width], `token_embedding.index` [k]
int32 (their ids, sorted), and `token_embedding.fill` [width], the mean of the rows, which stands
for every other id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from open_clip.model import CLIP
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn

from fednode.clip import checkpoint
from fednode.clip.settings import ASSETS
from fednode.clip.trunk import Trunk, TrunkSettings
from fednode.errors import ModelError

FOLDER: Final = ASSETS
VERSION: Final = 2
"""The version of config.json that this module reads."""
EMBEDDING: Final = "token_embedding.weight"
PARTS: Final = ("rows", "index", "fill")


def create(config: Mapping[str, Any]) -> CLIP:
    """Return a model of a configuration's shape, with random weights.

    Raise ModelError if the configuration describes no model.
    """
    version = config.get("version", 1)
    if version != VERSION:
        raise ModelError(
            f"config.json describes version {version!r} of the embedded model; this fednode reads "
            f"version {VERSION}: install the fednode of that version."
        )
    try:
        model = CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"])
        _put_trunk(model.visual, TrunkSettings.read(config["trunk_cfg"]))
    except KeyError as missing:
        raise ModelError(f"config.json lacks the key {missing}.") from missing
    except (TypeError, ValueError, IndexError, AssertionError) as fault:
        reason = " ".join(str(fault).split())[:160]
        raise ModelError(f"config.json describes no model: {reason}.") from fault
    return model


def _put_trunk(visual: Any, settings: TrunkSettings) -> None:
    """Replace the patch embedding by a trunk, and add a position for the concept token."""
    rows, columns = visual.grid_size
    width = int(visual.positional_embedding.shape[1])
    patch = visual.patch_size
    if patch != (settings.stride, settings.stride):
        raise ModelError(
            f"config.json sets vision_cfg.patch_size to {patch[0]}, and the strides of trunk_cfg "
            f"multiply to {settings.stride}: both must be the same number."
        )
    visual.conv1 = Trunk(settings, width)
    tokens = 1 + rows * columns + Trunk.extra_tokens
    visual.positional_embedding = nn.Parameter(width**-0.5 * torch.randn(tokens, width))


def expand(folder: Path = FOLDER) -> tuple[CLIP, dict[str, Any], frozenset[int]]:
    """Return the model in float32, its configuration, and the ids of the tokens that it has seen.

    Raise ModelError if the folder holds no such model, or a damaged one.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        content = (folder / "model.safetensors").read_bytes()
        tensors = load(content)
    except (OSError, ValueError, SafetensorError) as fault:
        raise ModelError(f"{folder} holds no exported model: {fault}.") from fault
    digest = hashlib.sha256(content).hexdigest()
    if config.get("sha256", digest) != digest:
        raise ModelError(
            f"{folder}/model.safetensors is damaged: its SHA-256 is not the one that config.json "
            "names; install fednode again."
        )
    missing = [part for part in PARTS if f"token_embedding.{part}" not in tensors]
    if missing:
        raise ModelError(f"{folder}/model.safetensors lacks token_embedding.{missing[0]}.")
    rows, index, fill = (tensors.pop(f"token_embedding.{part}") for part in PARTS)
    weights = {name: value.float() for name, value in tensors.items()}

    def put(made: nn.Module) -> None:
        table = fill.float().repeat(config["text_cfg"]["vocab_size"], 1)
        table[index.long()] = rows.float()
        made.load_state_dict({**weights, EMBEDDING: table}, assign=True)

    try:
        model = checkpoint.build(lambda _: create(config), put)
    except ModelError as fault:
        raise ModelError(f"{folder}: {fault}") from fault
    except (RuntimeError, IndexError) as fault:
        reason = " ".join(str(fault).split())[:200]
        raise ModelError(f"{folder}: the weights do not fit config.json: {reason}.") from fault
    return model.eval(), config, frozenset(index.tolist())


def save(folder: Path, model: nn.Module, config: Mapping[str, Any], rows: Tensor) -> int:
    """Write config.json and model.safetensors as they ship; return their size in bytes.

    model: a model as `create` returns it. config: written with the weights' SHA-256 added. rows:
    the ids [k] of the tokens that pretraining touched. Raise ModelError if a weight does not fit
    float16.
    """
    state = {name: value.detach().cpu().float() for name, value in model.state_dict().items()}
    index = torch.unique(rows)  # sorted
    known = state.pop(EMBEDDING)[index]
    tensors = {name: value.half().contiguous() for name, value in state.items()}
    tensors["token_embedding.rows"] = known.half().contiguous()
    tensors["token_embedding.fill"] = known.mean(dim=0).half()
    broken = [name for name, value in tensors.items() if not torch.isfinite(value).all()]
    if broken:
        raise ModelError(f"{broken[0]} holds values that float16 has not, or none at all.")
    tensors["token_embedding.index"] = index.to(torch.int32)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "model.safetensors.part"
    save_file(tensors, part, metadata={"format": f"fednode-mini/{VERSION}"})
    part.chmod(0o644)  # safetensors writes files that only their owner can read
    whole = {**config, "sha256": hashlib.sha256(part.read_bytes()).hexdigest()}
    (folder / "config.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    part.replace(folder / "model.safetensors")
    return sum((folder / name).stat().st_size for name in ("config.json", "model.safetensors"))
