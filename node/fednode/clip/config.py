"""Read the configuration of a model's folder, whose numbers are bounded before a model is built.

A folder comes from anywhere, and open_clip builds what its configuration says: with ten million
layers it would build for hours. The bounds lie far above the models of open_clip.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from fednode.core import foreign
from fednode.errors import ModelError

CONFIG: Final = "open_clip_config.json"
CONFIG_MAX: Final = 1 << 20
"""Bytes of a configuration that are read; a model's has a few thousand."""
SIZES: Final = "config.json"
"""The file of a folder that holds the sizes of its text tower, as the hub has it."""
WHOLE_MAX: Final = 1 << 21
"""Bound of a whole number without a bound of its own; vocabularies have up to 901,629 words."""
LAYERS_MAX: Final = 256
VALUE_MAX: Final = 60
"""Characters of a wrong value that a sentence repeats."""


class Bound(NamedTuple):
    """What a number may be: an int, or a float, too; or a list of `length` such numbers."""

    low: float
    high: float
    kind: type = int
    length: int = 0

    def holds(self, value: Any) -> bool:
        many = value if isinstance(value, list) and len(value) == self.length else [value]
        return all(type(one) in (int, self.kind) and self.low <= one <= self.high for one in many)

    def __str__(self) -> str:
        kind = "a whole number" if self.kind is int else "a number"
        either = f", or {self.length} of them" if self.length else ""
        return f"{kind} from {self.low:.10g} to {self.high:.10g}{either}"


ANY: Final = Bound(-WHOLE_MAX, WHOLE_MAX)
ANY_LAYERS: Final = Bound(0, LAYERS_MAX)
"""Bounds of whole numbers whose key has no bound of its own: of layers, and of all others."""
BOUNDS: Final[Mapping[str, Bound]] = {  # of the numbers of open_clip's configurations
    key: bound
    for keys, bound in (
        ("embed_dim width head_width dim_head", Bound(1, 1 << 16)),
        ("heads attn_pooler_heads", Bound(1, 1024)),
        ("layers", Bound(1, LAYERS_MAX, length=4)),
        ("mlp_ratio", Bound(0.01, 100, float)),
        ("patch_size image_size size", Bound(1, 4096, length=2)),
        ("context_length attn_pooler_queries n_queries", Bound(1, 8192)),
        ("vocab_size", Bound(1, WHOLE_MAX)),
        ("pad_id eos_id", Bound(0, WHOLE_MAX)),
        ("ls_init_value init_logit_scale init_logit_bias", Bound(-100, 100, float)),
        ("eps patch_dropout timm_drop timm_drop_path", Bound(0, 1, float)),
        ("mean", Bound(-1000, 1000, float, 3)),
        ("std", Bound(1e-4, 1000, float, 3)),
        ("fill_color", Bound(0, 255)),
    )
    for key in keys.split()
}


def read_config(folder: Path, name: str) -> Mapping[str, Any]:
    """Return "text_cfg" of a folder's configuration.

    name: of the model in the settings, for people. Raise ModelError if a file is at fault.
    """
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise ModelError(
                f"{file} is neither a file nor a folder, so no model is read from {folder}: fetch "
                "the file again."
            )
    path = folder / CONFIG
    try:
        tree = _read(path)
        text, _ = ({**tree["model_cfg"][part]} for part in ("text_cfg", "vision_cfg"))
        parts = {part: tree.get(part) for part in ("model_cfg", "preprocess_cfg")}
    except OSError as fault:
        raise ModelError(
            f"model.name is {name!r}, and {path} cannot be read ({fault.strerror}): download "
            f"{CONFIG}, the weights and the tokenizer of the model into one folder."
        ) from fault
    except (ValueError, LookupError, TypeError, RecursionError) as fault:
        raise ModelError(
            f"{path} is no configuration of open_clip, which has model_cfg with text_cfg and "
            "vision_cfg: fetch the file again."
        ) from fault
    check_numbers(parts, BOUNDS, path)
    return text


def read_sizes(folder: Path) -> Mapping[str, Any] | None:
    """Return the sizes in a folder; None if its file is of another kind or there is none."""
    from open_clip.hf_configs import arch_dict

    path = folder / SIZES
    try:
        tree = _read(path)
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    except OSError as fault:
        raise ModelError(f"{path} cannot be read: {fault.strerror}.") from fault
    if not isinstance(tree, dict) or tree.get("model_type") not in arch_dict:
        return None
    check_numbers(tree, {}, path)
    return tree


def _read(path: Path) -> Any:
    with path.open("rb") as content:
        return json.loads(content.read(CONFIG_MAX))


def check_numbers(tree: Mapping[str, Any], bounds: Mapping[str, Bound], path: Path) -> None:
    """Raise ModelError if a number of a configuration is none that a model has.

    bounds: by key, in whichever section it stands.
    """
    rest: list[tuple[str, Any]] = [("", tree)]
    while rest:
        place, value = rest.pop()
        key = place.rpartition(".")[2]
        bound = bounds.get(key)
        if bound is None and type(value) is int:
            bound = ANY_LAYERS if "layers" in key else ANY
        if isinstance(value, list) and bound is None:
            value = dict(enumerate(value))
        if isinstance(value, dict) and bound is None:
            rest += [(f"{place}.{name}".strip("."), part) for name, part in value.items()]
        elif bound is not None and value is not None and not bound.holds(value):
            shown = foreign.line(json.dumps(value), VALUE_MAX)
            raise ModelError(
                f"{path} says that {place} is {shown}; it must be {bound}: fetch the file again."
            )
