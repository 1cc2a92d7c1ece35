"""Write and read training checkpoints: tensors and plain values only, replaced atomically."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from node.errors import ModelError

FORMAT = 1


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint aside, flush it to the disk and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        torch.save({"format": FORMAT, **content}, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint on the CPU; raise ModelError if it is missing, torn or another format."""
    if not path.is_file():
        raise ModelError(f"{path} does not exist: give the checkpoint.pt of a pretraining run")
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as fault:  # a torn file makes torch raise nearly anything
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        raise ModelError(f"{path} is not a readable checkpoint ({reason[:120]})") from fault
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelError(
            f"{path} is not a pretraining checkpoint of format {FORMAT}: start a run without "
            "--resume, or give another file"
        )
    return content
