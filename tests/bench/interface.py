"""Compare what the nodes' meters say with what a loopback interface of their own has carried.

The meters count messages and leave out what fednode does not write itself: answers, TLS, TCP and
IP. The kernel counts bytes and packets of the interface and connections that were opened, so most
of these parts are known, and the rest has a bound for each call and each connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fednode.transports.framing import wire_bytes
from fednode.transports.grpc import KEEPALIVE_S
from fednode.wire import codec

PACKET: Final = 52
"""Bytes of a packet around its content: IPv4 (20) and TCP with time stamps (32)."""
ANSWER: Final = wire_bytes(len(codec.write_ack("ok", "")))
RECORD: Final = 22
"""Bytes that TLS 1.3 adds to a record: its header, its type and its tag."""
RECORDS: Final = (2, 6)
"""TLS records of a call, fewest and most: its request and its answer, each in one record or with
headers, trailers and gRPC's windows and pings in records of their own."""
FRAMES: Final = 120
"""Most bytes of windows and pings of a call; each is an HTTP/2 frame of 13 or 17 bytes."""
CONNECTION: Final = (1000, 4000)
"""Bytes to open a connection, fewest and most: TLS with both certificates, HTTP/2's settings, and
the first calls, whose headers are not compressed yet."""
PINGS: Final = 2 * 2 * (17 + RECORD)
"""Bytes with which both ends of a connection ping each other once, answers included."""


@dataclass(frozen=True, slots=True)
class Interface:
    """What the loopback interface of a network namespace has sent since the namespace began.

    connections: that were accepted; attempts at nodes that do not listen yet are packets alone.
    """

    bytes: int
    packets: int
    connections: int

    @classmethod
    def read(cls, proc: Path = Path("/proc/net")) -> Interface:
        """Return the counters of now."""
        (lo,) = (one for one in (proc / "dev").read_text("ascii").splitlines() if "lo:" in one)
        numbers = lo.partition(":")[2].split()
        names, counts = (
            one.split()
            for one in (proc / "snmp").read_text("ascii").splitlines()
            if one.startswith("Tcp:")
        )
        tcp = dict(zip(names, counts, strict=True))
        return cls(int(numbers[8]), int(numbers[9]), int(tcp["PassiveOpens"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The parts of an interface's bytes.

    wire: of messages, by the nodes' meters. messages: their number. requests, status: calls of the
    program that watches the mesh, and the bytes of their answers. seconds: of the run.
    """

    interface: Interface
    seconds: float
    wire: int
    messages: int
    requests: int
    status: int

    @property
    def packets(self) -> int:
        """Return the bytes of IP and TCP around the packets, acknowledgements included."""
        return PACKET * self.interface.packets

    @property
    def answers(self) -> int:
        """Return the bytes of the answers to messages."""
        return ANSWER * self.messages

    @property
    def watching(self) -> int:
        """Return the bytes of the status requests and their answers, with gRPC and HTTP/2."""
        return self.requests * (wire_bytes(0) + wire_bytes(0)) + self.status

    @property
    def rest(self) -> int:
        """Return the bytes that no part explains: TLS, opening connections, windows and pings."""
        known = self.packets + self.wire + self.answers + self.watching
        return self.interface.bytes - known

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the least and the most that the rest may be."""
        calls, opened = self.messages + self.requests, self.interface.connections
        least, most = (
            calls * RECORD * records + opened * connection
            for records, connection in zip(RECORDS, CONNECTION, strict=True)
        )
        pings = int(opened * PINGS * self.seconds / KEEPALIVE_S)
        return least, most + calls * FRAMES + pings

    def parts(self) -> Mapping[str, int]:
        """Return bytes by the part's name; together they are the interface's bytes."""
        return {
            "messages, by the meters": self.wire,
            "answers to messages": self.answers,
            "status requests of the supervisor": self.watching,
            "IP and TCP around packets": self.packets,
            "rest: TLS, connections, HTTP/2 windows and pings": self.rest,
        }

    def fault(self) -> str:
        """Return what does not fit, as a sentence; "" if meters and interface fit."""
        least, most = self.bounds
        if least <= self.rest <= most:
            return ""
        return (
            f"The meters say {self.wire:,} bytes of {self.messages:,} messages, and the interface "
            f"sent {self.interface.bytes:,}: {self.rest:,} bytes are unexplained, and "
            f"{least:,} to {most:,} can be. A meter is wrong, or something else used the interface."
        )
