"""Sizes of text towers of the library transformers.

open_clip's configuration of such a tower names a repository of the hub and holds no sizes. fednode
takes them from the model's own folder, or from the hub and its cache. It knows those of BiomedCLIP,
whose folder has none.
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
_BERT: Final = {
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
BIOMEDICAL: Final = tuple(
    f"microsoft/BiomedNLP-{name}-base-uncased-abstract{end}"
    for name in ("BiomedBERT", "PubMedBERT")
    for end in ("", "-fulltext")
)
"""Names of BiomedCLIP's text tower."""
TABLE: Final[Mapping[str, Mapping[str, Any]]] = dict.fromkeys(BIOMEDICAL, _BERT)
"""Sizes by the name that open_clip's configurations have for a text tower."""


@contextlib.contextmanager
def given(text: Mapping[str, Any], folder: Path | None = None) -> Iterator[None]:
    """Let open_clip build the text tower of a configuration.

    text: "text_cfg" of the configuration. folder: of the model's files. Raise ModelError if the
    sizes cannot be had or the library transformers is not installed.
    """
    name = text.get("hf_model_name")
    if not name:
        yield
        return
    need(f"the text tower {name}")
    sizes = _of_folder(folder) or TABLE.get(name)
    if sizes is None and folder is not None:
        raise _unknown(name, f"{folder} has no {FILE} with them")
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


def _unknown(name: str, why: str) -> ModelError:
    return ModelError(
        f"the sizes of the text tower {name} are unknown, because {why}: put the {FILE} of {name} "
        "into a folder with the model's files, and name it local-dir:FOLDER."
    )


class _Answer:
    """Stands where open_clip asks the hub for a configuration."""

    def __init__(self, sizes: Mapping[str, Any] | None) -> None:
        self._sizes = sizes

    def from_pretrained(self, name: str, *_: Any, **__: Any) -> Any:
        from transformers import AutoConfig

        if self._sizes is None:
            try:
                return AutoConfig.from_pretrained(name)
            except OSError as fault:
                why = "the hub does not give them, and they are not in its cache"
                raise _unknown(name, why) from fault
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
