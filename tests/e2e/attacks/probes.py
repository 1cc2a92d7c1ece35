"""Single attacks on live daemons, each of which the daemons must refuse or bear.

    python -m tests.e2e.attacks.probes CASE ...

    tls       what a connection may show: versions of TLS, ALPN, certificates, tickets, key updates
    revoked   what the open connection of a member may still say once its key is revoked
    page      commands from other origins, other hosts and without a token; paths; class names that
              are markup; 100 event streams of a local user
    dropped   bombs of images, a FIFO and a folder that is no UTF-8 in a running daemon's data

Prints a line for each attack, with what became of it, and "WRONG" ahead of what should not be.
Exit code 1 if anything is wrong. Only addresses of 127.0.0.0/8 are called.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tests.e2e.attacks import bombs
from tests.e2e.attacks.connections import revoked, tls
from tests.e2e.attacks.lab import Lab
from tests.e2e.attacks.pages import page

MEMORY_MORE: Final = 512.0
"""MiB above a node's own memory that files in its data folder may take."""


def drops(folder: Path) -> dict[str, Callable[[], None]]:
    """Return what is put into a folder of a class, by name."""
    side = bombs.SIDE
    return {
        "an RGBA PNG of 89 megapixels": lambda: bombs.png(folder / "z1.png", side, "rgba"),
        "a 16-bit PNG of 89 megapixels": lambda: bombs.png(folder / "z2.png", side, "grey", 16),
        "a FIFO named by digits": lambda: os.mkfifo(folder / "123"),
        "a link to /dev/zero": lambda: os.symlink("/dev/zero", folder / "55"),
        "a class folder whose name is not UTF-8": lambda: bombs.raw_name(folder),
    }


async def dropped(folder: Path) -> int:
    """Drop files into the data folder of a running daemon: its rounds go on, its memory stays."""
    data = folder / "images"
    target = bombs.plain(data)
    settings = ("--set", f"data.path={data}", "--set", "data.shots=1")
    async with Lab(folder, "a", (*settings, "--set", "rounds.min_interval_s=0.5")) as lab:
        _, before = lab.memory()
        for what, drop in drops(target).items():
            drop()
            try:
                await lab.rounds(5)
                now, most = lab.memory()
                found = f"five rounds later {now:.0f} MiB, at most {most - before:.0f} MiB more"
                lab.say(what, found, fine=most - before <= MEMORY_MORE)
            except TimeoutError:
                lab.say(what, "its rounds stand still", fine=False)
        return lab.wrong


CASES: Final[dict[str, Callable[[Path], Awaitable[int]]]] = {
    "tls": tls,
    "revoked": revoked,
    "page": page,
    "dropped": dropped,
}


async def run(case: str) -> int:
    """Run a case in a folder of its own; return how many things were wrong."""
    with tempfile.TemporaryDirectory(prefix="probes-") as folder:
        return await CASES[case](Path(folder))


def main(words: list[str]) -> int:
    """Run cases; return the exit code."""
    wrong = 0
    for case in words or CASES:
        print(f"-- {case}")
        wrong += asyncio.run(run(case))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
