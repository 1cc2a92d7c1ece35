"""Pack image files once into arrays that training maps into memory.

`<packed>/<source>/images.npy` is uint8 [N, side, side, 3]; `labels.npy` is int32 [N, 4], synset
offsets padded with -1; `captions.json` holds one list of texts for every image.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from bootstrap.pretrain.sources import MAX_LABELS, Picture, Source
from node.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Packed:
    """One packed source; `images` is mapped, not read."""

    name: str
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int32]
    captions: list[list[str]]


def pack(source: Source, out: Path, seed: int = 0) -> int:
    """Pack a source and return how many rows it has; files that are no image are skipped."""
    if not source.pictures:
        raise DataError(f"the source {source.name} has no images: check the folder given for it")
    folder = out / source.name
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(picture, view) for picture in source.pictures for view in source.views]
    shape = (len(rows), source.side, source.side, 3)
    images = np.lib.format.open_memmap(
        folder / "images.part.npy", mode="w+", dtype=np.uint8, shape=shape
    )
    kept: list[Picture] = []
    skipped = 0
    for picture, view in rows:
        rng = np.random.default_rng([seed, len(kept)])
        try:
            images[len(kept)] = _square(picture.path, source.side, view, rng)
        except (OSError, UnidentifiedImageError) as fault:
            log.warning("skipped %s: %s", picture.path, fault)
            skipped += 1
            continue
        kept.append(picture)
    if not kept:
        raise DataError(f"none of the {skipped} files of {source.name} is a readable image")
    images.flush()
    if skipped:  # the array is longer than what was read
        np.save(folder / "images.npy", images[: len(kept)])
        (folder / "images.part.npy").unlink()
    else:
        (folder / "images.part.npy").replace(folder / "images.npy")
    labels = np.full((len(kept), MAX_LABELS), -1, np.int32)
    for row, picture in zip(labels, kept, strict=True):
        row[: len(picture.labels)] = picture.labels
    np.save(folder / "labels.npy", labels)
    (folder / "captions.json").write_text(json.dumps([list(p.captions) for p in kept]))
    return len(kept)


def load(packed: Path, name: str) -> Packed:
    """Map one packed source; raise DataError if it was not packed or is torn."""
    folder = packed / name
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        labels = np.load(folder / "labels.npy", allow_pickle=False)
        captions: Any = json.loads((folder / "captions.json").read_text())
    except (OSError, ValueError) as fault:
        raise DataError(
            f"{folder} is not a packed source ({fault}): run `python -m bootstrap.pretrain pack`"
        ) from fault
    if not len(images) == len(labels) == len(captions):
        raise DataError(f"{folder} is torn: its arrays differ in length; pack it again")
    return Packed(name, images, labels, captions)


def packed_names(packed: Path) -> list[str]:
    """Return the names of all sources packed under a folder."""
    if not packed.is_dir():
        raise DataError(f"{packed} is not a folder: run `python -m bootstrap.pretrain pack` first")
    return sorted(p.parent.name for p in packed.glob("*/labels.npy"))


def _square(path: Path, side: int, view: str, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Read an image as RGB [side, side, 3]; transparent parts become white or, tiled, coloured."""
    with Image.open(path) as file:
        if file.mode in ("RGBA", "LA", "P"):
            rgba = file.convert("RGBA")
            paint = (255, 255, 255)
            if view == "tile":
                red, green, blue = (int(v) for v in rng.integers(0, 256, 3))
                paint = (red, green, blue)
            image = Image.new("RGB", rgba.size, paint)
            image.paste(rgba, mask=rgba.getchannel("A"))
        else:
            file.draft("RGB", (2 * side, 2 * side))  # let the JPEG decoder halve large photos
            image = file.convert("RGB")
    if view == "crop" and image.width != image.height:
        edge = min(image.size)
        left, top = (image.width - edge) // 2, (image.height - edge) // 2
        image = image.crop((left, top, left + edge, top + edge))
    if image.size != (side, side):
        image = image.resize((side, side), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(image, np.uint8)
