"""A relay that writes down all that it carries, as `fednode relay` runs it.

python -m tests.e2e.recording_relay FILE --state DIR --peers FILE --listen HOST:PORT
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvloop

from fednode.transports.relay_service import RelayService
from fednode_bootstrap.relay import serve


async def noted(messages: AsyncIterator[bytes], file: Any) -> AsyncIterator[bytes]:
    """Yield messages, and write each to a file."""
    async for data in messages:
        file.write(data)
        yield data


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    for name in ("--state", "--peers"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--listen", required=True)
    given = parser.parse_args()
    copy, file = RelayService._copy, given.file.open("ab", buffering=0)

    async def record(self: RelayService, source: Any, sink: Any) -> None:
        await copy(self, (noted(source[0], file), source[1]), sink)

    RelayService._copy = record  # type: ignore[method-assign]

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await serve(given.state, given.peers, given.listen, stop, print)

    uvloop.run(run())


if __name__ == "__main__":
    main()
