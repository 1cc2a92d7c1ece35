"""Make four domains of images on which the settings of the PACS tables are chosen.

    python -m tools.domains Caltech101_128px_q88.zip data/styled

The PACS tables test all domains of PACS, so their settings cannot be chosen there. This tool takes
Caltech-101 categories that no table tests (tools/search.py takes the same ones) and gives each
image to one of four domains: photos stay as they are, the others are redrawn as paintings,
cartoons and sketches (tools/styles.py). It writes FOLDER/<domain>/<category>/<image>.jpg,
the same bytes at each call.
"""

from __future__ import annotations

import argparse
import io
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from tools import styles
from tools.builtin_images import by_category, others

CLASSES: Final = 7
IMAGES: Final = 20
"""Most images of one class in one domain."""
STYLES: Final[Mapping[str, Callable[[styles.Picture, styles.Chance], styles.Picture]]] = {
    "art_painting": styles.paint,
    "cartoon": styles.cartoon,
    "photo": lambda image, _: image,
    "sketch": styles.sketch,
}


def choose(members: Mapping[str, list[str]]) -> list[str]:
    """Return the categories: of those that do not ship with fednode, the ones with most images."""
    return sorted(sorted(others(members), key=lambda name: (-len(members[name]), name))[:CLASSES])


def write(archive: Path, folder: Path) -> int:
    """Write all images; return their number. Raise FileExistsError if the folder exists."""
    folder.mkdir(parents=True)
    count = 0
    with zipfile.ZipFile(archive) as source:
        members = by_category(source)
        for category in choose(members):
            chosen = sorted(members[category])[: IMAGES * len(STYLES)]
            for at, member in enumerate(chosen):
                domain = list(STYLES)[at % len(STYLES)]
                target = folder / domain / category
                target.mkdir(parents=True, exist_ok=True)
                redrawn = redraw(source.read(member), domain, at)
                (target / member.rsplit("/", 1)[-1]).write_bytes(redrawn)
                count += 1
    return count


def redraw(content: bytes, domain: str, seed: int) -> bytes:
    """Return a JPEG in the style of a domain."""
    with Image.open(io.BytesIO(content)) as image:
        pixels = np.asarray(image.convert("RGB"))
    redrawn = STYLES[domain](pixels, np.random.default_rng(seed))
    target = io.BytesIO()
    Image.fromarray(redrawn).save(target, "JPEG", quality=88)
    return target.getvalue()


def main() -> int:
    """Write the folder; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.domains", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("archive", type=Path, help="Caltech101_128px_q88.zip")
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")
    given = parser.parse_args()
    if given.folder.exists():
        parser.error(f"{given.folder} exists; name a folder that does not exist yet.")
    sys.stdout.write(f"{write(given.archive, given.folder)} images in {given.folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
