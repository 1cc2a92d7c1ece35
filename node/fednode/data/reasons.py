"""Say which files of a data set are skipped and why, and which images are of one colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fednode import units
from fednode.data.base import DataSettings, NodeData

NAMED: Final = 20
"""Most files that a sentence names."""
CLASSES_NAMED: Final = 50
"""Most class names that a sentence lists."""
Skipped = Sequence[tuple[Path, str]]


def kind(reason: str) -> str:
    """Return a reason without its details: "damaged" of "damaged: image file is truncated"."""
    return reason.partition(":")[0].partition(" (")[0].partition(";")[0]


def by_kind(skipped: Skipped) -> dict[str, list[tuple[Path, str]]]:
    """Return skipped files by the kind of their reason; the most frequent kind first."""
    files: dict[str, list[tuple[Path, str]]] = {}
    for path, why in skipped:
        files.setdefault(kind(why), []).append((path, why))
    return dict(sorted(files.items(), key=lambda pair: -len(pair[1])))


def summaries(data: NodeData) -> list[str]:
    """Return a sentence on skipped files and one on images of one colour, if there are any."""
    sentences = []
    if data.skipped:
        kinds = ", ".join(f"{name}: {len(files)}" for name, files in by_kind(data.skipped).items())
        count = _counted(len(data.skipped), "file")
        sentences.append(
            f"Skipped {count}, such as '{data.skipped[0][0]}' ({kinds}); `fednode check` names all."
        )
    if data.constant:
        sentences.append(
            f"{_counted(len(data.constant), 'image')} of one colour throughout, such as "
            f"'{data.constant[0]}', in which the model sees nothing; `fednode check` names all."
        )
    return sentences


def listed(skipped: Skipped, constant: Sequence[Path]) -> list[str]:
    """Return a sentence for each kind of skipped files, and one on images of one colour."""
    sentences = [
        f"Skipped {_counted(len(files), 'file')} ({name}): {_named(list(map(_shown, files)))}"
        for name, files in by_kind(skipped).items()
    ]
    if constant:
        sentences.append(
            f"{_counted(len(constant), 'image')} of one colour throughout, in which the model sees "
            "nothing; data.window sets which values of a grey image become black and white: "
            + _named([f"'{path}'" for path in constant])
        )
    return sentences


def described(data: NodeData, settings: DataSettings) -> str:
    """Return sentences that count classes and images, and say which names the mesh sees."""
    counts = data.described(settings.path)
    if not settings.tell_classes:
        kept = "Members of the mesh do not see the class names (data.tell_classes is false)."
        return f"{counts} {kept}"
    return f"{counts} {told(data.train.classes)}"


def told(classes: Sequence[str]) -> str:
    """Return a sentence that lists the class names that members of the mesh see."""
    text = "Members of the mesh see these class names, unless data.tell_classes is false"
    return f"{text}: {_named(classes, CLASSES_NAMED)}"


def _shown(skipped: tuple[Path, str]) -> str:
    path, why = skipped
    detail = why.removeprefix(kind(why)).lstrip(" :;") if kind(why) != why else ""
    if detail.startswith("(") and detail.endswith(")"):
        detail = detail[1:-1]
    return f"'{path}' ({detail})" if detail and not detail.startswith(".") else f"'{path}'"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _named(names: Sequence[str], most: int = NAMED) -> str:
    return units.listed(names, most) + "."
