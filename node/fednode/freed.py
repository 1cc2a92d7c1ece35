"""Memory of the C library: daemons on one machine give back what they do not need."""

from __future__ import annotations

import ctypes
from typing import Any, Final

ARENAS: Final = -8
"""M_ARENA_MAX of glibc's mallopt."""


def trim() -> None:
    """Return freed memory to the system; do nothing where the C library is not glibc.

    Encoding images needs about 100 MB for a moment, and glibc keeps freed memory.
    """
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def use_one_arena() -> None:
    """Let all threads allocate from one arena; call this before there is a second thread.

    glibc gives each thread an arena of its own, from which other threads cannot take freed memory.
    """
    library = _glibc()
    if library is not None:
        library.mallopt(ARENAS, 1)


def _glibc() -> Any:
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None
