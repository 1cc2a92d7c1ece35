"""Say which files of a data set are skipped and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fednode import units

NAMED: Final = 20
"""Most files of a kind that are named by default."""


def skip_report(skipped: Sequence[tuple[Path, str]], most: int = NAMED) -> list[str]:
    """Return a sentence for each kind of skipped files, the most frequent kind first.

    most: files of a kind that are named; more are counted.
    """
    files: dict[str, list[str]] = {}
    for path, why in skipped:
        kind = why.partition(":")[0].partition(" (")[0].partition(";")[0]
        files.setdefault(kind, []).append(_shown(path, why.removeprefix(kind)))
    return [
        f"Skipped {len(shown)} file{'s' * (len(shown) > 1)} ({kind}): {units.listed(shown, most)}."
        for kind, shown in sorted(files.items(), key=lambda pair: -len(pair[1]))
    ]


def _shown(path: Path, detail: str) -> str:
    """Return a path, and in brackets the details of its reason, if it has any."""
    detail = detail.lstrip(" :;")
    if detail.startswith("(") and detail.endswith(")"):
        detail = detail[1:-1]
    return f"'{path}' ({detail})" if detail and not detail.startswith(".") else f"'{path}'"
