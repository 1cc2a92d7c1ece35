"""A made-up folder of BiomedCLIP's form: its configuration's shape, small random weights.

The text tower is a BERT of the library transformers, the image tower a ViT of timm, and the
tokenizer WordPiece, as in microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import open_clip
import torch
from safetensors.torch import save_file

from fednode.clip.config import SIZES
from fednode.clip.load import text_sizes
from tests.unit.clip import twins

BERT: Final = "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
CONFIG: Final[dict[str, Any]] = {
    "model_cfg": {
        "embed_dim": 32,
        "vision_cfg": {
            "timm_model_name": "test_vit",
            "timm_model_pretrained": False,
            "timm_pool": "",
            "timm_proj": "linear",
            "image_size": 160,
        },
        "text_cfg": {
            "hf_model_name": BERT,
            "hf_tokenizer_name": BERT,
            "hf_proj_type": "mlp",
            "hf_pooler_type": "cls_last_hidden_state_pooler",
            "context_length": 48,
        },
    },
    "preprocess_cfg": {
        "size": [160, 160],
        "mean": [0.48145466, 0.4578275, 0.40821073],
        "std": [0.26862954, 0.26130258, 0.27577711],
    },
}
"""The shape of BiomedCLIP's own configuration; only the sizes are smaller."""
_PARTS = CONFIG["model_cfg"]
REAL: Final[dict[str, Any]] = {
    "model_cfg": {
        "embed_dim": 512,
        "vision_cfg": {
            **_PARTS["vision_cfg"],
            "timm_model_name": "vit_base_patch16_224",
            "image_size": 224,
        },
        "text_cfg": {**_PARTS["text_cfg"], "context_length": 256},
    },
    "preprocess_cfg": {key: CONFIG["preprocess_cfg"][key] for key in ("mean", "std")},
}
"""BiomedCLIP's own configuration: a ViT-B/16 of 224 pixels, and texts of 256 tokens."""


def biomedical(
    folder: Path, form: str = "bin", seed: int = 0, config: dict[str, Any] = CONFIG
) -> Path:
    """Write a folder as downloaded from the hub. form: of the weights, bin or safetensors.

    The folder's config.json makes the BERT small, whatever the configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = twins.word_pieces(folder)
    longest = 2 * config["model_cfg"]["text_cfg"]["context_length"]
    known = {**twins.FROM_HUB["bert"], "vocab_size": len(tokenizer.tokenizer)}
    (folder / SIZES).write_text(json.dumps({**known, "max_position_embeddings": longest}))
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(seed)
    with text_sizes(config["model_cfg"]["text_cfg"], folder):
        model = open_clip.create_model(
            f"local-dir:{folder}", load_weights=False, pretrained_text=False
        )
    state = {name: one.contiguous() for name, one in model.state_dict().items()}
    if form == "bin":
        # Left over from older versions of transformers, as in the file on the hub.
        state["text.transformer.embeddings.position_ids"] = torch.arange(longest)[None]
        torch.save(state, folder / "open_clip_pytorch_model.bin")
    else:
        save_file(state, folder / "open_clip_model.safetensors")
    return folder
