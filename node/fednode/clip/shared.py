"""Weights that all nodes of a machine map: one float32 file per model, beside the cached features.

Checkpoints in float16, downloads and the shipped model are converted once. From then on every
process maps the same file, so its pages are in memory once, however many daemons run. The file's
name is the model's fingerprint, which is computed again from the mapped weights: a damaged file is
written anew. If the folder is full or not writable, each process keeps its own weights in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

FOLDER = "weights"


class SharedWeights:
    """A folder of weights, bounded in size; see the file's header."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.notes: list[str] = []
        self._folder = folder / FOLDER
        self._size = size_bytes

    def put_under(self, model: nn.Module, fingerprint: str, examine: Callable[[], str]) -> None:
        """Replace a model's tensors by the shared file's.

        fingerprint: of the model. examine: computes the fingerprint again from the mapped tensors.
        """
        path = self._folder / f"{fingerprint}.safetensors"
        own = model.state_dict()
        try:
            if path.is_file():
                if self._mapped(model, path) and examine() == fingerprint:
                    os.utime(path)  # files used last are removed last
                    return
                model.load_state_dict(own, assign=True)
                self._note(f"The shared weights {path} were damaged and are written anew.")
            self._write(own, path)
            if not self._mapped(model, path):
                self._note(f"The shared weights {path} cannot be read back: not shared.")
        except (OSError, RuntimeError, SafetensorError) as fault:
            # torch and safetensors raise RuntimeError for a full disk, too.
            model.load_state_dict(own, assign=True)
            reason = " ".join(str(fault).split())[:120]
            self._note(f"Weights cannot be shared through {path} ({reason}): memory is used twice.")

    def _mapped(self, model: nn.Module, path: Path) -> bool:
        try:
            model.load_state_dict(load_file(path), assign=True)
        except (RuntimeError, SafetensorError):
            return False
        return True

    def _write(self, state: dict[str, Tensor], path: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            save_file({name: array.contiguous() for name, array in state.items()}, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        self._make_room(path)

    def _make_room(self, newest: Path) -> None:
        """Remove the files used longest ago; a process that mapped a file keeps its weights."""
        files = [file for file in self._folder.glob("*.safetensors") if file != newest]
        files.sort(key=lambda file: file.stat().st_mtime)
        room = self._size - newest.stat().st_size - sum(file.stat().st_size for file in files)
        while files and room < 0:
            oldest = files.pop(0)
            room += oldest.stat().st_size
            oldest.unlink(missing_ok=True)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
