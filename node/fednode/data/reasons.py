"""Say which files of a data set are skipped and why, and which images are of one colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fednode.data.base import NodeData

NAMED: Final = 20
"""Most files that a sentence names."""
Skipped = Sequence[tuple[Path, str]]


def kind(reason: str) -> str:
    """Return a reason without its details: "damaged" of "damaged: image file is truncated"."""
    return reason.partition(":")[0].partition(" (")[0].partition(";")[0]


def by_kind(skipped: Skipped) -> dict[str, list[tuple[Path, str]]]:
    """Return skipped files by the kind of their reason; the most frequent kind first."""
    found: dict[str, list[tuple[Path, str]]] = {}
    for path, why in skipped:
        found.setdefault(kind(why), []).append((path, why))
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def summaries(data: NodeData) -> list[str]:
    """Return a sentence on skipped files and one on images of one colour, if there are any."""
    found = []
    if data.skipped:
        kinds = ", ".join(f"{name}: {len(files)}" for name, files in by_kind(data.skipped).items())
        count = _counted(len(data.skipped), "file")
        found.append(
            f"Skipped {count}, such as '{data.skipped[0][0]}' ({kinds}); `fednode check` names all."
        )
    if data.constant:
        found.append(
            f"{_counted(len(data.constant), 'image')} of one colour throughout, such as "
            f"'{data.constant[0]}', in which the model sees nothing; `fednode check` names all."
        )
    return found


def listed(skipped: Skipped, constant: Sequence[Path]) -> list[str]:
    """Return a sentence for each kind of skipped files, and one on images of one colour."""
    found = [
        f"Skipped {_counted(len(files), 'file')} ({name}): {_named(list(map(_shown, files)))}"
        for name, files in by_kind(skipped).items()
    ]
    if constant:
        found.append(
            f"{_counted(len(constant), 'image')} of one colour throughout, in which the model sees "
            "nothing; data.window sets which values of a grey image become black and white: "
            + _named([f"'{path}'" for path in constant])
        )
    return found


def _shown(one: tuple[Path, str]) -> str:
    path, why = one
    detail = why.removeprefix(kind(why)).lstrip(" :;") if kind(why) != why else ""
    if detail.startswith("(") and detail.endswith(")"):
        detail = detail[1:-1]
    return f"'{path}' ({detail})" if detail and not detail.startswith(".") else f"'{path}'"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more + "."
