"""Sizes of text towers of the library transformers, so that open_clip need not ask the hub.

open_clip's configuration of such a tower names a repository of the hub and holds no sizes. fednode
takes them from the model's own folder, or from the table below, which holds the towers of open_clip
and of BiomedCLIP.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from fednode.errors import ModelError

FILE: Final = "config.json"
"""The file of a folder that holds the sizes, as the hub has it beside the text model."""
MISSING: Final = (
    "needs the library transformers, which is not installed: run `pip install 'fednode[hf]'`"
)
_BASE: Final = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
_LARGE: Final = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_BERT: Final = {"model_type": "bert", "vocab_size": 30522, **_BASE}
_ROBERTA: Final = {
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_XLM: Final = {"model_type": "xlm-roberta", "vocab_size": 250002, **_ROBERTA}
_MT5: Final = {
    "model_type": "mt5",
    "vocab_size": 250112,
    "d_kv": 64,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
_NLLB: Final = {
    "model_type": "m2m_100",
    "vocab_size": 256206,
    "d_model": 1024,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "max_position_embeddings": 1024,
    "scale_embedding": True,
    "activation_function": "relu",
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
BIOMEDICAL: Final = tuple(
    f"microsoft/BiomedNLP-{name}-base-uncased-abstract{end}"
    for name in ("BiomedBERT", "PubMedBERT")
    for end in ("", "-fulltext")
)
"""Names of BiomedCLIP's text tower."""


def _of_nllb(layers: int, ffn_dim: int) -> dict[str, Any]:
    both = {f"{part}_layers": layers for part in ("encoder", "decoder")}
    hidden = {f"{part}_ffn_dim": ffn_dim for part in ("encoder", "decoder")}
    return {**_NLLB, **both, **hidden}


TABLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "bert-base-uncased": _BERT,
    **dict.fromkeys(BIOMEDICAL, _BERT),
    "roberta-base": {"model_type": "roberta", "vocab_size": 50265, **_BASE, **_ROBERTA},
    "xlm-roberta-base": {**_XLM, **_BASE},
    "xlm-roberta-large": {**_XLM, **_LARGE},
    "google/mt5-base": {**_MT5, "d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
    "google/mt5-xl": {**_MT5, "d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32},
    "facebook/nllb-200-distilled-600M": _of_nllb(12, 4096),
    "facebook/nllb-200-distilled-1.3B": _of_nllb(24, 8192),
}
"""Sizes by the name that open_clip's configurations have for a text tower."""


@contextlib.contextmanager
def given(text: Mapping[str, Any], folder: Path | None = None) -> Iterator[None]:
    """Let open_clip build the text tower of a configuration without asking the hub for its sizes.

    text: "text_cfg" of the configuration. folder: of the model's files. Raise ModelError if the
    sizes are unknown or the library transformers is not installed.
    """
    name = text.get("hf_model_name")
    if not name:
        yield
        return
    need(f"the text tower {name}")
    sizes = _of_folder(folder) or TABLE.get(name)
    if sizes is None:
        where = f"{folder} has no {FILE} with them" if folder else "open_clip does not know them"
        raise ModelError(
            f"the sizes of the text tower {name} are unknown, because {where}: put the {FILE} of "
            f"{name} into a folder with the model's files, and name it local-dir:FOLDER."
        )
    asked: Any = importlib.import_module("open_clip.hf_model")
    before = asked.AutoConfig
    asked.AutoConfig = _Answer(sizes)
    try:
        yield
    finally:
        asked.AutoConfig = before


def need(what: str) -> None:
    """Raise ModelError if the library transformers is not installed."""
    try:
        importlib.import_module("transformers")
    except ImportError as fault:
        raise ModelError(f"{what} {MISSING}.") from fault


class _Answer:
    """Stands where open_clip asks the hub for a configuration."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        self._sizes = sizes

    def from_pretrained(self, *_: Any, **__: Any) -> Any:
        from transformers import AutoConfig

        kind, own = self._sizes["model_type"], dict(self._sizes)
        own.pop("model_type")
        return AutoConfig.for_model(kind, **own)


def _of_folder(folder: Path | None) -> Mapping[str, Any] | None:
    """Return the sizes in a folder; None if its file is of another kind or there is none."""
    if folder is None:
        return None
    from open_clip.hf_configs import arch_dict

    try:
        tree = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    usable = isinstance(tree, dict) and tree.get("model_type") in arch_dict
    return tree if usable else None
