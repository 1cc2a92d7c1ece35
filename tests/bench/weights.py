"""A ViT-B/16 with random weights as a checkpoint file: speed and memory do not hang on values."""

from __future__ import annotations

import logging
from pathlib import Path

import open_clip
import torch
from safetensors.torch import save_file

MODEL = "ViT-B-16"


def checkpoint(folder: Path) -> Path:
    """Write a float32 checkpoint (600 MB) into a folder; return its path."""
    logging.disable(logging.WARNING)  # open_clip warns that the weights are random
    torch.manual_seed(0)
    path = folder / "vit-b-16.safetensors"
    save_file(open_clip.create_model(MODEL).state_dict(), path)
    logging.disable(logging.NOTSET)
    return path
