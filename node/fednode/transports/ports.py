"""Find free ports of this machine."""

from __future__ import annotations

import contextlib
import socket
from random import Random, SystemRandom
from typing import Final

from fednode.errors import AddressError

# Below the range that systems use for outgoing connections, so that no peer's own connection
# occupies a port before its daemon listens there.
PORTS: Final = range(20_000, 32_000)
PORT_TRIES: Final = 2_000


def free_ports(count: int, seed: str = "") -> list[int]:
    """Return distinct ports of 127.0.0.1 on which nothing listens now.

    seed: the same seed gives the same ports as long as these are free; "" draws others each time.
    """
    chance = Random(seed) if seed else SystemRandom()
    free: list[int] = []
    with contextlib.ExitStack() as held:
        for _ in range(PORT_TRIES):
            if len(free) == count:
                return free
            port = chance.choice(PORTS)
            taken = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            free.append(port)
    raise AddressError(
        f"Only {len(free)} free ports of {count} were found on 127.0.0.1 between {PORTS.start} "
        f"and {PORTS.stop - 1}: start fewer nodes, or end what uses the ports."
    )
