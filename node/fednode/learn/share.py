"""Prompts as files for other programs: fednode's own, CoOp's checkpoints, text features.

    safetensors   every exchanged array by name; the metadata names policy, model and settings
    coop          {"state_dict": {"ctx": [length, width]}, "epoch": round}, which CoOp's trainer and
                  trainers built on it load from <folder>/prompt_learner/model.pth.tar-<round>
    matrix        text features [classes, width], unit rows, and the logit scale, as in open_clip:
                  scale * unit image features @ matrix.T are the logits, without fednode

CoOp's checkpoints hold context vectors alone. A matrix needs logits that are linear in the image
features, so visual prompts cannot be exported as a matrix.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fednode.clip.backbone import Backbone
from fednode.clip.checkpoint import load_weights
from fednode.core.types import Array, Tensors
from fednode.errors import ModelError, StateError
from fednode.learn.context import NAME
from fednode.learn.objective import Batch, Objective
from fednode.learn.settings import TuningSettings
from fednode.learn.texts import ClassTexts
from fednode.learn.torch_learner import leaves
from fednode.storage.disk import because, writing_fault

FORMAT: Final = "fednode prompts 1"
LINEAR: Final = 1e-3
PROBES: Final = 16


def write_arrays(prompts: Tensors, facts: Mapping[str, str], path: Path) -> None:
    """Write prompts with metadata as safetensors; raise StateError if that fails."""
    held = {name: torch.from_numpy(one.copy()) for name, one in prompts.items()}
    _saved(path, lambda: save_file(held, path, {"format": FORMAT, **facts}))


def read_arrays(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Return prompts and metadata; raise ModelError if fednode did not write the file."""
    try:
        with safe_open(path, "np") as file:
            facts = dict(file.metadata() or {})
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        prompts = Tensors(found)
    except (OSError, SafetensorError, ValueError, TypeError) as fault:
        raise ModelError(
            f"{path} cannot be read as safetensors: give a file that `fednode export` wrote."
        ) from fault
    if facts.get("format") != FORMAT or not prompts.finite():
        raise ModelError(f"{path} holds no prompts that `fednode export` wrote, or no numbers.")
    return prompts, facts


def write_coop(prompts: Tensors, number: int, folder: Path) -> Path:
    """Write CoOp's checkpoint of a round; return its path.

    Raise ModelError if the prompts are more than context vectors, StateError if writing fails.
    """
    if set(prompts) != {NAME}:
        raise ModelError(
            f"CoOp's checkpoints hold context vectors and nothing else; these prompts are "
            f"{', '.join(prompts)}: export them as safetensors."
        )
    path = folder / "prompt_learner" / f"model.pth.tar-{number}"
    held = {"state_dict": {"ctx": torch.from_numpy(prompts[NAME].copy())}, "epoch": number}

    def save() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({**held, "optimizer": None, "scheduler": None, "val_result": None}, path)

    _saved(path, save)
    return path


def read_coop(path: Path) -> Tensors:
    """Return the context vectors of a CoOp checkpoint; no code in the file is run.

    Raise ModelError if the file holds no finite context vectors [length, width].
    """
    found = load_weights(path)
    try:
        context = found["state_dict"]["ctx"].float().numpy()
    except Exception as fault:  # anything may be in place of a tensor
        raise ModelError(
            f"{path} is no CoOp checkpoint: it holds no tensor `ctx` in a `state_dict`. Give a "
            "model.pth.tar-N of CoOp's prompt_learner, or a .safetensors file of `fednode export`."
        ) from fault
    prompts = Tensors({NAME: context})
    if context.ndim != 2 or not prompts.finite():
        raise ModelError(
            f"{path} holds ctx of shape {list(context.shape)}; fednode reads one context for all "
            "classes, [length, width], of finite numbers."
        )
    return prompts


@torch.no_grad()
def matrix(
    frozen: Backbone,
    tuning: TuningSettings,
    objective: type[Objective],
    config: Any,
    prompts: Tensors,
    classes: Sequence[str],
) -> tuple[torch.Tensor, float]:
    """Return unit text features [classes, width] and the logit scale that give the same logits.

    Raise ModelError if the prompts change image features, or if the logits are not the image
    features times such a matrix and scale.
    """
    made = objective(frozen, tuning, config)
    refused = ModelError(
        "these prompts do more than a matrix of text features can: they change how images are "
        "seen. Use `fednode predict`, or export them as safetensors."
    )
    if made.looks or made.constant is not None:
        raise refused
    classify = made.classifier(leaves(prompts, frozen.device), tuple(classes))
    width = ClassTexts(frozen).written(tuple(classes), tuning.template).shape[1]

    def logits(units: torch.Tensor) -> torch.Tensor:
        return classify(Batch(features=units, norms=torch.ones_like(units[:, 0]))).float()

    found = logits(torch.eye(width, device=frozen.device)).T
    probes = torch.randn(PROBES, width, generator=torch.Generator().manual_seed(0))
    probes = torch.nn.functional.normalize(probes, dim=1).to(frozen.device)
    if not torch.allclose(logits(probes), probes @ found.T, atol=LINEAR):
        raise refused
    lengths = found.norm(dim=1, keepdim=True)
    if float((lengths - lengths.mean()).abs().max()) > LINEAR * float(lengths.mean()):
        raise refused
    return (found / lengths).cpu().contiguous(), float(lengths.mean())


def write_matrix(
    features: Array,
    scale: float,
    classes: Sequence[str],
    facts: Mapping[str, str],
    path: Path,
) -> None:
    """Write text features and scale as safetensors, with the class names in the metadata."""
    held = {"text_features": torch.from_numpy(features), "logit_scale": torch.tensor(scale)}
    _saved(path, lambda: save_file(held, path, {"classes": json.dumps(list(classes)), **facts}))


def _why(path: Path, fault: Exception) -> str:
    """Return why a file could not be written, in words for people."""
    if isinstance(fault, OSError):
        return because(fault)
    if path.is_dir():
        return "a folder has this name"
    if not path.parent.exists():
        return f"there is no folder {path.parent}"
    return writing_fault(path.parent) or str(fault)


def _saved(path: Path, save: Any) -> None:
    try:
        save()
    except (OSError, SafetensorError, RuntimeError) as fault:
        raise StateError(
            f"{path} cannot be written: {_why(path, fault)}; give another place for TO."
        ) from fault
