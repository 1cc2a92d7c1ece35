"""Prompts as files for other programs: fednode's own, and text features.

    safetensors   every exchanged array by name; the metadata names policy, model and settings
    matrix        text features [classes, width], unit rows, and the logit scale, as in open_clip:
                  scale * unit image features @ matrix.T are the logits, without fednode. For class
                  sums (policy gda, `local` with head gda) weight [classes, width] and bias
                  [classes]: unit image features @ weight.T + bias are the logits

A matrix needs logits that are affine in the image features, so visual prompts cannot be exported as
a matrix.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fednode.core.types import Array, Tensors
from fednode.errors import ModelError
from fednode.learn.prompt_module import Batch, PromptModule, to_params
from fednode.storage.disk import because, put

FORMAT: Final = "fednode prompts 1"
ROWS: Final = "rows"
"""The metadata's entry for the class names of the arrays' rows, if they have some."""
HEADER_MAX: Final = 4 << 20
"""Bytes of a safetensors file that name its arrays and hold its metadata."""
LINEAR: Final = 1e-3
PROBES: Final = 16


def write_arrays(prompts: Tensors, facts: Mapping[str, str], path: Path) -> None:
    """Write prompts with metadata as safetensors; raise StateError if that fails."""
    named = {ROWS: json.dumps(prompts.classes)} if prompts.classes else {}
    _write(path, prompts, {"format": FORMAT, **named, **facts})


def _require_short_header(path: Path) -> None:
    """Raise ValueError if a file's first eight bytes announce a header of over HEADER_MAX bytes.

    The library takes a header of 53 MB apart for 45 s, and 1.6 GB of memory for its names.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > HEADER_MAX:
        raise ValueError(f"its header has {length:,} bytes, and {HEADER_MAX:,} is the limit")


def read_arrays(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Return prompts and metadata; raise ModelError if fednode did not write the file."""
    try:
        _require_short_header(path)
        with safe_open(path, "np") as file:
            facts = dict(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        prompts = Tensors(arrays, [str(name) for name in json.loads(facts.get(ROWS, "[]"))])
    except OSError as fault:
        raise ModelError(f"{path} cannot be read: {because(fault)}.") from fault
    except (SafetensorError, ValueError, TypeError) as fault:
        raise ModelError(
            f"{path} cannot be read as safetensors: give a file that `fednode export` wrote."
        ) from fault
    if facts.get("format") != FORMAT or not prompts.finite():
        raise ModelError(f"{path} holds no prompts that `fednode export` wrote, or no numbers.")
    return prompts, facts


@torch.no_grad()
def affine(module: PromptModule, prompts: Tensors, classes: Sequence[str]) -> tuple[Array, Array]:
    """Return weights [classes, width] and a bias [classes] that give the same logits.

    logits = unit image features @ weights.T + bias. Raise ModelError if the prompts change image
    features, or if the logits are not of this form.
    """
    refused = ModelError(
        "these prompts do more than a matrix of text features can: they change how images are "
        "seen. Use `fednode predict`, or export them as safetensors."
    )
    if module.uses_image_encoder or module.per_image is not None:
        raise refused
    device = module.clip.device
    classify = module.classifier(to_params(prompts, device), tuple(classes))
    width = module.handwritten(tuple(classes)).shape[1]

    def logits(units: torch.Tensor) -> torch.Tensor:
        return classify(Batch(image_features=units, norms=torch.ones_like(units[:, 0]))).float()

    bias = logits(torch.zeros(1, width, device=device))[0]
    weights = (logits(torch.eye(width, device=device)) - bias).T
    probes = torch.randn(PROBES, width, generator=torch.Generator().manual_seed(0))
    probes = torch.nn.functional.normalize(probes, dim=1).to(device)
    if not torch.allclose(logits(probes), probes @ weights.T + bias, atol=LINEAR):
        raise refused
    return np.ascontiguousarray(weights.cpu().numpy()), bias.cpu().numpy()


def as_texts(weights: Array, bias: Array) -> tuple[Array, float] | None:
    """Return unit text features [classes, width] and the logit scale; None if there are none.

    weights, bias: of `affine`. Class sums have a bias for each class and rows of different lengths.
    A bias that all classes share changes no probability.
    """
    lengths = np.linalg.norm(weights, axis=1, keepdims=True)
    scale = float(lengths.mean())
    if float(np.abs(lengths - scale).max()) > LINEAR * scale or float(np.ptp(bias)) > LINEAR:
        return None
    return weights / lengths, scale


def write_matrix(
    weights: Array, bias: Array, classes: Sequence[str], facts: Mapping[str, str], path: Path
) -> None:
    """Write text features and a scale, or weights and a bias, as safetensors; see the header.

    weights, bias: of `affine`.
    """
    texts = as_texts(weights, bias)
    if texts is None:
        arrays = {"weight": weights, "bias": bias}
    else:
        arrays = {"text_features": texts[0], "logit_scale": np.array(texts[1], np.float32)}
    _write(path, arrays, {"classes": json.dumps(list(classes)), **facts})


def _write(path: Path, arrays: Mapping[str, Array], facts: dict[str, str]) -> None:
    put(path.resolve(), save(dict(arrays), facts), "place for TO", for_all=True)
