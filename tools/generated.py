"""Generated files: write them, or tell which of them differ from what lies there."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path


def main(
    about: str | None,
    arguments: Sequence[str] | None,
    generate: Callable[[], Mapping[Path, bytes]],
    present: Callable[[], Iterable[Path]],
    hint: str,
) -> int:
    """Write files, or compare them with `--check`; return the exit code.

    about: the program's documentation. generate: returns all files, or raises RuntimeError.
    present: returns the files that may be surplus. hint: says what to do about stale files.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args(arguments).check
    try:
        wanted = generate()
    except RuntimeError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    stale = sorted(
        path
        for path in {*wanted, *present()}
        if path not in wanted or not path.is_file() or path.read_bytes() != wanted[path]
    )
    if check and stale:
        print(f"error: {', '.join(map(os.path.relpath, stale))}: {hint}", file=sys.stderr)
        return 1
    for path in stale:
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted[path])
        else:
            path.unlink()
    return 0
