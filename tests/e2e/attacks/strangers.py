"""Handshakes of strangers: with next to no work of their own, and whole ones; and a crowd of them.

python -m tests.e2e.attacks.strangers [--count 1000] [--together 24] [--members 1]: a founder's
daemon of its own, which a member has joined, is asked for a lease by so many strangers with keys of
their own, from many addresses of this machine. Prints what its memory was before, at most in the
flood, and after it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from fednode.admission.files import Files
from fednode.errors import FednodeError
from fednode.identity.enrol import judge_token, sponsor
from fednode.identity.identity import Identity
from fednode.transports.address import Endpoint
from fednode.transports.opening import Streams
from fednode.transports.ports import free_ports
from tests.e2e.attacks.http2 import ALPN, TIMEOUT_S, Wire, in_threads, rest, stranger_context

THREADS: Final = 2
AGAIN_S: Final = 0.01
SETTLES_S: Final = 15.0
"""How long a daemon may take to start, and to give memory back after a crowd (TRIM_S, and some)."""
JOINS_S: Final = 60.0
SOURCES: Final = 50
FEDNODE: Final = (sys.executable, "-m", "fednode.cli")


def recorded() -> bytes:
    """Return a ClientHello."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(ALPN))
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(into, out).do_handshake()
    return out.read()


def hellos(address: str, seconds: float, source: str) -> dict[str, Any]:
    """Send a ClientHello in each connection, wait for the signature, and hang up."""
    said = recorded()
    host, port = address.rsplit(":", 1)

    def knock() -> None:
        with socket.create_connection((host, int(port)), TIMEOUT_S, (source, 0)) as raw:
            raw.sendall(said)
            if not raw.recv(4096):
                raise ConnectionError("refused")

    return _again(knock, seconds)


def completed(address: str, seconds: float, source: str) -> dict[str, Any]:
    """Complete a handshake in each connection, and wait until the node hangs up."""
    context = stranger_context()

    def knock() -> None:
        wire = Wire(address, context, source)
        try:
            wire.socket.settimeout(TIMEOUT_S)
            wire.socket.recv(1)
        finally:
            wire.close()

    return _again(knock, seconds)


def _again(knock: Callable[[], None], seconds: float) -> dict[str, Any]:
    """Knock again and again from THREADS threads; return how often it went well."""
    tally, end = Counter[str](), time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < end:
            try:
                knock()
                tally["done"] += 1
            except OSError:
                tally["refused"] += 1
                rest(AGAIN_S)

    in_threads(work, THREADS, seconds)
    return dict(tally)


def crowd(count: int, together: int, members: int) -> str:
    """Let strangers knock at a founder's daemon; return its memory before, in and after it.

    members: sites that join before. The first caller, a member or a stranger, lets the system map
    code of OpenSSL and gRPC that a lone daemon has not needed.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as daemons:
        home = Path(folder)
        images = home / "images" / "one"
        images.mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(images / "1.png")
        data = ("--data", str(images.parent))
        at, *places = (f"127.0.0.1:{port}" for port in free_ports(1 + members))
        _run(home, home, "found", "ward", *data, "--site", "a", "--address", at)
        ward = home / "ward"
        node = daemons.enter_context(_daemon(home, ward, "start"))
        rest(SETTLES_S)
        lone = memory(node.pid)
        for number, place in enumerate(places, 1):
            said = _run(home, ward, "invite", f"m{number}")
            link, words = said[0], said[-1].rpartition(": ")[2]
            own = home / f"m{number}"
            own.mkdir()
            more = ("--address", place, "--yes", "--words", words)
            daemons.enter_context(_daemon(home, own, "join", link, *data, *more))
            _until_enrolled(home, number)
        _run(home, ward, "invite", "b")
        rest(SETTLES_S)
        before, told = memory(node.pid), list[Memory]()
        over = threading.Event()
        watching = threading.Thread(target=_watch, args=(node.pid, over, told))
        watching.start()
        began = time.monotonic()
        answers = asyncio.run(_knock(at, home / "keys", count, together))
        seconds = time.monotonic() - began
        over.set()
        watching.join()
        rest(SETTLES_S)
        after = memory(node.pid)
    most = max(told, default=before)
    return (
        f"{count} strangers in {seconds:.0f} s ({dict(answers)}), {members} members\n"
        f"before any member: {lone}\nbefore the flood:  {before}\n"
        f"most in the flood: {most}\nafter it:          {after}"
    )


@dataclass(frozen=True, order=True)
class Memory:
    """Resident memory of a process in MiB. own: not of files, which processes share."""

    all: float
    own: float

    def __str__(self) -> str:
        return (
            f"{self.all:6.1f} MiB: {self.own:5.1f} of its own, {self.all - self.own:.1f} of files"
        )


def memory(pid: int) -> Memory:
    """Return the resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    told = {key: int(text.partition(key)[2].split()[0]) / 1024 for key in ("VmRSS:", "RssFile:")}
    return Memory(told["VmRSS:"], told["VmRSS:"] - told["RssFile:"])


def _run(home: Path, cwd: Path, *words: str) -> list[str]:
    """Run a command of fednode; return the lines that it printed."""
    ran = subprocess.run(
        (*FEDNODE, *words), cwd=cwd, env=_given(home), check=True, capture_output=True, text=True
    )
    return (ran.stdout + ran.stderr).splitlines()


@contextlib.contextmanager
def _daemon(home: Path, cwd: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon; end it after use."""
    with Path(cwd, "log").open("wb") as log:
        daemon = subprocess.Popen(
            (*FEDNODE, *words), cwd=cwd, env=_given(home), stdout=log, stderr=log
        )
        try:
            yield daemon
        finally:
            daemon.terminate()
            daemon.wait(30)


def _given(home: Path) -> dict[str, str]:
    return os.environ | {"HOME": str(home), "FEDNODE_TUNING__KIND": "closed-form"}


def _until_enrolled(home: Path, count: int) -> None:
    """Wait until so many sites have a lease of the founder; raise TimeoutError if that is late."""
    files = Files(home / ".local/state/fednode/ward/a/admission")
    end = time.monotonic() + JOINS_S
    while len(files.enrolled()) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"no member {count} within {JOINS_S:g} s")
        rest(AGAIN_S)


async def _knock(at: str, folder: Path, count: int, together: int) -> Counter[str]:
    """Ask for leases with wrong tokens, so many at a time; count the answers."""
    answers, places = Counter[str](), asyncio.Semaphore(together)

    async def stranger(number: int) -> None:
        async def connect(endpoint: Endpoint) -> Streams:
            own = f"127.0.1.{1 + number % SOURCES}", 0
            return await asyncio.open_connection(endpoint.numeric, endpoint.port, local_addr=own)

        async with places:
            identity = Identity(folder / str(number), "ward", "b")
            asked = sponsor(at, lambda _: True)
            try:
                await judge_token(identity, asked, "127.0.0.1:9", "00" * 12, connect)
            except FednodeError as fault:
                answers[type(fault).__name__] += 1

    await asyncio.gather(*map(stranger, range(count)))
    return answers


def _watch(pid: int, over: threading.Event, told: list[Memory]) -> None:
    while not over.wait(0.05):
        told.append(memory(pid))


def main() -> None:
    """Print what a crowd costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--together", type=int, default=24)
    parser.add_argument("--members", type=int, default=1)
    given = parser.parse_args()
    print(crowd(given.count, given.together, given.members))


if __name__ == "__main__":
    main()
