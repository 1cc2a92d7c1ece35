"""Image features, encoded once: with text prompts alone they are constants of the frozen model.

Kept on disk by (model fingerprint, precision, file content). The file is a cache: a missing,
damaged or unwritable one costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from node.clip.backbone import Backbone
from node.data.images import read_rgb
from node.errors import DataError
from node.learn.learner import Cancelled

BATCH: Final = 64
WORKERS: Final = 4


class Features:
    """Encode images and remember the outcome."""

    def __init__(self, backbone: Backbone, file: Path | None = None) -> None:
        """Read what an earlier run left in `file`; None keeps everything in memory only."""
        self._backbone = backbone
        self._file = file
        self._key = f"{backbone.fingerprint}/{backbone.precision}"
        self._known: dict[bytes, Tensor] = self._read()

    def of(self, paths: Sequence[Path], cancelled: Callable[[], bool]) -> Tensor:
        """Return unit features [n, D], float32, on the model's device, in the order of paths.

        Raise DataError where a file is gone or damaged since it was examined, Cancelled when told.
        """
        device = self._backbone.device
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="decode") as pool:
            digests = list(pool.map(_digest, paths))
            wanted = {
                digest: path
                for digest, path in zip(digests, paths, strict=True)
                if digest not in self._known
            }
            todo = list(wanted.items())
            for at in range(0, len(todo), BATCH):
                if cancelled():
                    raise Cancelled
                part = todo[at : at + BATCH]
                batch = torch.stack(list(pool.map(self._decode, (path for _, path in part))))
                encoded = self._backbone.encode_images(batch).cpu()
                self._known.update(zip((d for d, _ in part), encoded.unbind(), strict=True))
        if todo:
            self._write()
        if not digests:
            return torch.zeros(0, 0, device=device)
        return torch.stack([self._known[digest] for digest in digests]).to(device)

    def _decode(self, path: Path) -> Tensor:
        try:
            return self._backbone.preprocess(read_rgb(path))
        except Exception as fault:
            # Decoders raise anything at all on a file that was changed under way.
            reason = " ".join(str(fault).split())[:120]
            raise DataError(f"'{path}' cannot be read any more: {reason}.") from fault

    def _read(self) -> dict[bytes, Tensor]:
        if self._file is None or not self._file.exists():
            return {}
        try:
            with safe_open(self._file, framework="pt") as found:
                if (found.metadata() or {}).get("model") != self._key:
                    return {}
                keys, features = found.get_tensor("digests"), found.get_tensor("features")
        except (OSError, SafetensorError):
            return {}
        return {
            bytes(key.tolist()): feature.clone()
            for key, feature in zip(keys.unbind(), features.unbind(), strict=False)
        }

    def _write(self) -> None:
        if self._file is None:
            return
        digests = sorted(self._known)
        tensors = {
            "digests": torch.tensor([list(digest) for digest in digests], dtype=torch.uint8),
            "features": torch.stack([self._known[digest] for digest in digests]),
        }
        aside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            save_file(tensors, aside, metadata={"model": self._key})
            aside.replace(self._file)
        except (OSError, SafetensorError):
            # A full or read-only disk only costs the next start some time.
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)


def _digest(path: Path) -> bytes:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError as fault:
        raise DataError(f"'{path}' cannot be read any more: {fault.strerror}.") from fault
