"""What is asked of glibc, and that other C libraries are left alone."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from fednode import freed


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return what a C library like glibc is asked from now on."""
    calls: list[tuple[Any, ...]] = []
    library = SimpleNamespace(
        malloc_trim=lambda pad: calls.append(("malloc_trim", pad)),
        mallopt=lambda what, value: calls.append(("mallopt", what, value)),
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    return calls


def test_freed_memory_goes_back_whole_and_threads_share_one_arena(
    asked: list[tuple[Any, ...]],
) -> None:
    freed.trim()
    freed.use_one_arena()
    assert asked == [("malloc_trim", 0), ("mallopt", -8, 1)]  # M_ARENA_MAX of malloc.h


def test_another_c_library_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    other = SimpleNamespace(mallopt=lambda *_: called.append("mallopt"))  # without malloc_trim
    monkeypatch.setattr(ctypes, "CDLL", lambda name: other)
    freed.trim()
    freed.use_one_arena()
    assert called == []
