"""Read fednode-mini, the model that ships, as a plain open_clip CLIP.

`model.safetensors` holds open_clip's state dict in float16, except that the token embedding is
stored as the rows that pretraining touched: `token_embedding.rows` [k, width],
`token_embedding.index` [k] int32 (their ids, sorted) and `token_embedding.fill` [width], the mean
of the rows, which stands for every other id.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from open_clip.model import CLIP
from safetensors import SafetensorError
from safetensors.torch import load

from node.clip import checkpoint
from node.errors import ModelError

FOLDER: Final = Path(__file__).parent / "assets" / "fednode-mini"
EMBEDDING: Final = "token_embedding.weight"
PARTS: Final = ("rows", "index", "fill")


def expand(folder: Path = FOLDER) -> tuple[CLIP, dict[str, Any], frozenset[int]]:
    """Return the model in float32 with all tokens, its configuration, and the tokens it has seen.

    Raise ModelError where the folder holds no such model or a damaged one.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        content = (folder / "model.safetensors").read_bytes()
        tensors = load(content)
    except (OSError, ValueError, SafetensorError) as fault:
        raise ModelError(f"{folder} holds no exported model: {fault}.") from fault
    found = hashlib.sha256(content).hexdigest()
    if config.get("sha256", found) != found:
        raise ModelError(
            f"{folder}/model.safetensors is damaged: its SHA-256 is not the one that config.json "
            "names; install fednode again."
        )
    missing = [part for part in PARTS if f"token_embedding.{part}" not in tensors]
    if missing:
        raise ModelError(f"{folder}/model.safetensors lacks token_embedding.{missing[0]}.")
    rows, index, fill = (tensors.pop(f"token_embedding.{part}") for part in PARTS)
    table = fill.float().repeat(config["text_cfg"]["vocab_size"], 1)
    table[index.long()] = rows.float()
    weights = {name: value.float() for name, value in tensors.items()}
    try:
        model = checkpoint.build(
            lambda _: CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"]),
            lambda made: made.load_state_dict({**weights, EMBEDDING: table}, assign=True),
        )
    except RuntimeError as fault:
        reason = " ".join(str(fault).split())[:200]
        raise ModelError(f"{folder}: the weights do not fit config.json: {reason}.") from fault
    return model.eval(), config, frozenset(index.tolist())
