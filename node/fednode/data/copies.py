"""Count exact copies of images; no file is named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from fednode.data.base import Problem, Split, note, warning
from fednode.data.images import Verdict


def copies_among(
    train: Split, test: Split, validation: Split, verdicts: Mapping[Path, Verdict]
) -> Iterator[Problem]:
    """Yield a warning on test images that train, too, and a note that counts all copies."""
    known = {verdicts[image.path].digest for image in train.images}
    copies = sum(verdicts[image.path].digest in known for image in test.images)
    if copies:
        yield warning(
            f"{copies:,} of {len(test.images):,} test images are exact copies of training images, "
            "so the test accuracy is too high: remove the copies from the training images or from "
            "the test images."
        )
    classes = defaultdict[str, list[str]](list)
    for split in (train, validation, test):
        for image in split.images:
            classes[verdicts[image.path].digest].append(split.classes[image.label])
    repeated = sum(len(names) - 1 for names in classes.values())
    several = sum(len(set(names)) > 1 for names in classes.values())
    if repeated:
        yield note(
            f"Images that are exact copies of others: {repeated:,}. Images that are in several "
            f"classes: {several:,}."
        )
