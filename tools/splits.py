"""Write the published splits of data sets in the form that fednode reads (docs/data.md).

    python -m tools.splits aircraft FOLDER    FGVC Aircraft: variants.txt, images_variant_*.txt
    python -m tools.splits domainnet FOLDER   DomainNet: <domain>_*.txt beside its domains, or in
                                              the folder splits
    python -m tools.splits vlcs FOLDER        VLCS as published: <DOMAIN>/{train,crossval,test}/0

The form is CoOp's: {"train": [[file, label, class name], ...], "val": [...], "test": [...]}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

Split = dict[str, list[tuple[str, int, str]]]
VLCS: Final = ("bird", "car", "chair", "dog", "person")
"""Classes of VLCS, whose folders are called 0 to 4."""


def aircraft(root: Path) -> Mapping[Path, Split]:
    """Return the split of lines "number variant"; a variant's label is its line's number."""
    variants = lines(root / "variants.txt")
    split: Split = {}
    for part in ("train", "val", "test"):
        split[part] = []
        for line in lines(root / f"images_variant_{part}.txt"):
            image, _, variant = line.partition(" ")
            split[part].append((f"images/{image}.jpg", variants.index(variant), variant))
    return {root / "split_zhou_FGVCAircraft.json": split}


def domainnet(root: Path) -> Mapping[Path, Split]:
    """Return each domain's split, of lines "domain/class/file label"."""
    splits: dict[Path, Split] = {}
    for path in (*root.glob("*_t*.txt"), *root.glob("splits/*_t*.txt")):
        domain, _, part = path.stem.rpartition("_")
        split = splits.setdefault(root / domain / f"split_zhou_{domain}.json", {})
        split[part] = []
        for line in lines(path):
            file, _, label = line.rpartition(" ")
            _, name, image = file.split("/")
            split[part].append((f"{name}/{image}", int(label), name))
    return splits


def vlcs(root: Path) -> Mapping[Path, Split]:
    """Return each domain's split, of the numbered folders of its parts."""
    splits: dict[Path, Split] = {}
    for place in root.glob("*/train"):
        domain = place.parent
        splits[domain / f"split_zhou_{domain.name}.json"] = {
            part: [
                (path.relative_to(domain).as_posix(), label, VLCS[label])
                for label in range(len(VLCS))
                for path in sorted((domain / folder / str(label)).iterdir())
            ]
            for part, folder in (("train", "train"), ("val", "crossval"), ("test", "test"))
        }
    return splits


READERS: Final = {one.__name__: one for one in (aircraft, domainnet, vlcs)}


def lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]


def main(words: list[str]) -> None:
    if len(words) != 2 or words[0] not in READERS:
        sys.exit(f"usage: python -m tools.splits {'|'.join(READERS)} FOLDER")
    found = READERS[words[0]](Path(words[1]))
    if not found:
        sys.exit(f"'{words[1]}' holds no split of {words[0]}.")
    for path, split in found.items():
        path.write_text(json.dumps(split), "utf-8")
        print(f"{path}: {', '.join(f'{len(rows)} {part}' for part, rows in split.items())}")


if __name__ == "__main__":
    main(sys.argv[1:])
