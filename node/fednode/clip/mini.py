"""Read fednode-mini, the model that ships, as an open_clip CLIP.

Version 2 is a hybrid vision transformer: open_clip's, with a convolutional trunk (clip/trunk.py;
"trunk_cfg" of config.json) in place of its `conv1`. `positional_embedding` has a row for the class
token, for each cell of the grid, and for the trunk's concept token.

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
from open_clip.transform import PreprocessCfg, merge_preprocess_dict
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from fednode.clip.load import build_model
from fednode.clip.settings import ASSETS
from fednode.clip.trunk import Trunk
from fednode.errors import ModelError

EMBEDDING: Final = "token_embedding.weight"
PARTS: Final = ("rows", "index", "fill")


def create(config: Mapping[str, Any]) -> CLIP:
    """Return a model of a configuration's shape, with random weights."""
    model = CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"])
    visual: Any = model.visual
    rows, columns = visual.grid_size
    width = int(visual.positional_embedding.shape[1])
    trunk = Trunk(config["trunk_cfg"], width)
    if visual.patch_size != (trunk.stride, trunk.stride):
        raise ValueError(f"the strides of trunk_cfg multiply to {trunk.stride}")
    visual.conv1 = trunk
    tokens = 1 + rows * columns + Trunk.extra_tokens
    visual.positional_embedding = nn.Parameter(width**-0.5 * torch.randn(tokens, width))
    return model


def expand(folder: Path = ASSETS) -> tuple[CLIP, frozenset[int]]:
    """Return the model in float32, and the ids of the tokens that it has seen.

    Raise ModelError if the folder holds no such model, or a damaged one.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        content = (folder / "model.safetensors").read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if config.get("sha256", digest) != digest:
            raise ValueError("the SHA-256 of model.safetensors is not that of config.json")
        tensors = load(content)
        rows, index, fill = (tensors.pop(f"token_embedding.{part}") for part in PARTS)
        weights = {name: value.float() for name, value in tensors.items()}

        def put(made: nn.Module) -> None:
            table = fill.float().repeat(config["text_cfg"]["vocab_size"], 1)
            table[index.long()] = rows.float()
            made.load_state_dict({**weights, EMBEDDING: table}, assign=True)

        model = build_model(lambda device: create(config), put)
        visual: Any = model.visual
        visual.preprocess_cfg = merge_preprocess_dict(PreprocessCfg(), config["preprocess_cfg"])
    except (FileNotFoundError, ArithmeticError, AssertionError, LookupError, RuntimeError,
            SafetensorError, TypeError, ValueError) as fault:  # fmt: skip
        reason = f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}"
        raise ModelError(
            f"{folder} holds no embedded model, or a damaged one ({reason}): install fednode again."
        ) from fault
    except OSError as fault:
        raise ModelError(f"The embedded model in {folder} cannot be read: {fault}.") from fault
    return model.eval(), frozenset(index.tolist())
