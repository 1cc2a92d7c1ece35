"""A relay that writes down all that it carries, as `fednode relay run` runs it.

python -m tests.e2e.recording_relay FILE --state DIR --peers FILE --listen HOST:PORT
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path
from typing import Any

import uvloop

from fednode.transports.carrier import Carrier
from fednode.transports.session import Ends
from fednode_bootstrap.relay_host import serve


class Noted:
    """A reader whose bytes are written to a file, too."""

    def __init__(self, reader: Any, file: Any) -> None:
        self._reader, self._file = reader, file

    async def read(self, n: int = -1) -> bytes:
        """Return the next bytes."""
        data: bytes = await self._reader.read(n)
        self._file.write(data)
        return data


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    for name in ("--state", "--peers"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--listen", required=True)
    given = parser.parse_args()
    copy = Carrier._copy
    file = given.file.open("ab", buffering=0)

    async def noted(self: Any, id: str, source: Ends, target: Ends, most: int) -> None:
        await copy(self, id, Ends(Noted(source.reader, file), source.writer), target, most)

    Carrier._copy = noted  # type: ignore[method-assign]

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await serve(given.peers, given.state, given.listen, stop, print)

    uvloop.run(run())


if __name__ == "__main__":
    main()
