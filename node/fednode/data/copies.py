"""Count exact copies of images; no file is named."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from fednode.data.base import Split
from fednode.data.images import Verdict

Verdicts = Mapping[Path, Verdict]


def warnings(train: Split, test: Split, verdicts: Verdicts) -> list[str]:
    """Return a sentence on copies between training and test images, if there are any."""
    paths = {image.path for image in test.images}
    known = {verdicts[image.path].digest for image in train.images}
    copies = sum(verdicts[path].digest in known for path in paths)
    verb = "is an exact copy of a training image"
    if copies != 1:
        verb = "are exact copies of training images"
    text = (
        f"{copies:,} of {len(paths):,} test images {verb}, so the test accuracy is too high: "
        "remove the copies from the training images or from the test images."
    )
    return [text] if copies else []


def note(sets: Mapping[str, Split], verdicts: Verdicts) -> list[str]:
    """Return a sentence that counts the exact copies in and between sets, if there are any.

    sets: by their use, such as "training"; they have the same classes.
    """
    classes: dict[str, set[str]] = {}
    digests: dict[str, list[str]] = {}
    for use, split in sets.items():
        digests[use] = [verdicts[image.path].digest for image in split.images]
        for image in split.images:
            name = split.classes[image.label]
            classes.setdefault(verdicts[image.path].digest, set()).add(name)
    parts = [
        f"{count:,} among the {use} images"
        for use, held in digests.items()
        if (count := len(held) - len(set(held)))
    ]
    parts += [
        f"{count:,} both among the {first} images and among the {second} images"
        for first, second in combinations(digests, 2)
        if (count := len(set(digests[first]) & set(digests[second])))
    ]
    several = sum(len(names) > 1 for names in classes.values())
    parts += [f"{several:,} in more than one class"] if several else []
    return [f"Exact copies of images: {', '.join(parts)}."] if parts else []
