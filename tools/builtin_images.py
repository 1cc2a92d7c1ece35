"""Rebuild the images that ship with fednode, byte for byte, from a Caltech-101 archive.

    python -m tools.builtin_images Caltech101_128px_q88.zip            writes the assets
    python -m tools.builtin_images Caltech101_128px_q88.zip --check    compares only

The archive holds `<any folder>/<category>/<image>.jpg`. Images are chosen by their names alone;
node/fednode/data/assets/README.md states the rule and its reasons.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from PIL import Image

from fednode.data import builtin

EXCLUDED = ("BACKGROUND_Google", "Faces", "Faces_easy")
IMAGES_PER_CLASS = 24
JPEG_QUALITY = 75


def choose(categories: Iterable[str]) -> list[str]:
    """Return the categories that ship: every second category by name, without the excluded ones."""
    return sorted(name for name in categories if name not in EXCLUDED)[::2]


def by_category(source: zipfile.ZipFile) -> dict[str, list[str]]:
    """Return the images of an archive `<any folder>/<category>/<image>.jpg`, by category."""
    members: dict[str, list[str]] = {}
    for member in source.namelist():
        parts = member.split("/")
        if len(parts) >= 2 and parts[-1].lower().endswith(".jpg"):
            members.setdefault(parts[-2], []).append(member)
    return members


def build(archive: Path) -> dict[str, bytes]:
    """Return the content of every shipped image, by its path below the assets folder."""
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(archive) as source:
        members = by_category(source)
        for category in choose(members):
            for member in sorted(members[category])[:IMAGES_PER_CLASS]:
                name = f"{builtin.FOLDER}/{category}/{member.rsplit('/', 1)[-1]}"
                files[name] = encode(source.read(member))
    return files


def encode(content: bytes) -> bytes:
    """Return an image as the JPEG that ships: same size, lower quality, no metadata."""
    target = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        # Use a new image, because save() would copy comments and profiles.
        plain = Image.new("RGB", image.size)
        plain.paste(image.convert("RGB"))
    plain.save(target, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return target.getvalue()


def manifest(files: Mapping[str, bytes]) -> str:
    """Return the lines of SHA256SUMS, as `sha256sum --check` reads them."""
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))


def write(files: Mapping[str, bytes], assets: Path) -> None:
    """Write images and manifest; refuse a folder that holds other images."""
    images = assets / builtin.FOLDER
    present = {path.relative_to(assets).as_posix() for path in images.rglob("*.jpg")}
    strangers = sorted(present - set(files))
    if strangers:
        raise SystemExit(
            f"{len(strangers)} images below {images} are not part of the set, such as "
            f"{strangers[0]}: remove that folder first."
        )
    for name, content in files.items():
        path = assets / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (assets / builtin.MANIFEST).write_text(manifest(files), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Rebuild or compare; return 1 if a comparison fails."""
    parser = argparse.ArgumentParser(description="Rebuild the built-in images.")
    parser.add_argument("archive", type=Path, help="zip of Caltech-101, a folder per category")
    parser.add_argument("--assets", type=Path, default=builtin.ASSETS, help="folder to write to")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(arguments)
    files = build(options.archive)
    size_mb = sum(map(len, files.values())) / 1e6
    classes = len({name.rsplit("/", 1)[0] for name in files})
    print(f"{len(files)} images of {classes} classes, {size_mb:.2f} MB")
    if options.check:
        same = (options.assets / builtin.MANIFEST).read_text(encoding="utf-8") == manifest(files)
        print("The manifest agrees." if same else "The manifest differs.")
        return 0 if same else 1
    write(files, options.assets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
