"""NATs for tests of meetings, on loopback.

They are sockets that take what comes and answer nothing, as a NAT does that drops packets; without
them the system would refuse these packets at once.
"""

from __future__ import annotations

import ctypes
import socket
import struct

from fednode.transports import meeting
from fednode.transports.address import Endpoint

BOUND = meeting._bound
SO_ATTACH_FILTER = 26
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # a packet filter of one instruction: return 0


class Nats:
    """NATs that keep ports and drop what comes in uninvited. dialled: what nodes dialled."""

    def __init__(self) -> None:
        self.dialled: list[Endpoint] = []
        self._silent: dict[int, socket.socket] = {}

    def bound(self, family: int, port: int) -> socket.socket:
        made = BOUND(family, port)
        port = int(made.getsockname()[1])
        if port not in self._silent:
            wall = self._silent[port] = BOUND(family, port)
            code = ctypes.create_string_buffer(DROP_ALL)
            program = struct.pack("HL", 1, ctypes.addressof(code))
            wall.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
            wall.listen()
        return made

    def close(self) -> None:
        for wall in self._silent.values():
            wall.close()
