"""Frames are found wherever the stream is cut."""

from __future__ import annotations

import pytest

from fednode.transports.frames import PREFACE_BYTES, Frames
from tests.e2e.attacks.http2 import PREFACE, frame

FRAMES = b"".join(frame(kind, kind, kind, bytes(7 * kind)) for kind in (0, 1, 9, 255))


@pytest.mark.parametrize("step", [1, 2, 8, 9, 10, 1000])
def test_frames_are_found_however_they_come(step: int) -> None:
    frames, said = Frames(preface=True), PREFACE + FRAMES
    found = [one for at in range(0, len(said), step) for one in frames.feed(said[at : at + step])]
    assert len(PREFACE) == PREFACE_BYTES
    assert found == [(7 * kind, kind, kind, kind) for kind in (0, 1, 9, 255)]


def test_long_frames_are_passed_over() -> None:
    frames = Frames(preface=False)
    (one,) = frames.feed(frame(0, 1, 2**31 - 1, bytes((1 << 24) - 1))[: 1 << 16])
    assert one == ((1 << 24) - 1, 0, 1, 2**31 - 1)
    left = (1 << 24) - 1 + 9 - (1 << 16)
    for at in range(0, left, 1 << 16):
        assert frames.feed(bytes(min(1 << 16, left - at))) == []
    assert frames.feed(frame(6)) == [(0, 6, 0, 0)]
