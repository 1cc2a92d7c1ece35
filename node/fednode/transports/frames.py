"""Find the frames in a stream of HTTP/2 (RFC 9113, section 4.1) by their heads alone."""

from __future__ import annotations

import struct
from typing import Final

HEAD: Final = struct.Struct(">HBBBI")
"""Of a frame: the length of its body in 24 bits, kind, flags, stream."""
HEAD_BYTES: Final = HEAD.size
PREFACE_BYTES: Final = 24
"""What a caller says ahead of its first frame (RFC 9113, section 3.4)."""


Frame = tuple[int, int, int, int]
"""What a frame's head says: bytes of its body, kind, flags, stream."""


class Frames:
    """The frames of one direction of a connection, however its bytes are cut."""

    def __init__(self, preface: bool) -> None:
        """Begin. preface: whether the other end says one first."""
        self._skip = PREFACE_BYTES if preface else 0
        self._part = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes; return the frames whose heads are whole by now."""
        at = self._skip
        if at >= len(data):  # the middle of a long frame
            self._skip = at - len(data)
            return []
        if self._part:
            data, self._part = self._part + data, b""
        frames, last, read = list[Frame](), len(data) - HEAD_BYTES, HEAD.unpack_from
        while at <= last:
            high, low, kind, flags, stream = read(data, at)
            size = high << 8 | low
            frames.append((size, kind, flags, stream))
            at += HEAD_BYTES + size
        if at < len(data):
            self._part, self._skip = data[at:], 0
        else:
            self._skip = at - len(data)
        return frames
