"""Handshakes of strangers: with next to no work of their own, and whole ones; and a crowd of them.

python -m tests.e2e.attacks.strangers [--count 1000] [--together 24]: a founder's daemon of its own
is asked for a lease by so many strangers with keys of their own, from many addresses of this
machine. Prints what its memory was before, at most in the flood, and after it.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

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
SOURCES: Final = 50


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


def crowd(count: int, together: int, warm: int) -> str:
    """Let strangers knock at a founder's daemon; return its memory before, in and after it.

    warm: strangers that knock before the first look, who cost what is loaded once.
    """
    with tempfile.TemporaryDirectory() as home:
        images = Path(home) / "images" / "one"
        images.mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(images / "1.png")
        at = f"127.0.0.1:{free_ports(1)[0]}"
        given = {"HOME": home, "FEDNODE_TUNING__KIND": "closed-form"}
        fednode = (sys.executable, "-m", "fednode.cli")

        def run(*words: str, cwd: str = home) -> None:
            command = (*fednode, *words)
            subprocess.run(
                command, cwd=cwd, env=os.environ | given, check=True, capture_output=True
            )

        run("found", "ward", "--data", str(images.parent), "--site", "a", "--address", at)
        run("invite", "b", cwd=f"{home}/ward")
        with Path(home, "log").open("wb") as log:
            node = subprocess.Popen(
                (*fednode, "start"), cwd=f"{home}/ward", env=os.environ | given, stderr=log
            )
            try:
                rest(SETTLES_S)
                if warm:
                    asyncio.run(_knock(at, Path(home, "warm"), warm, together))
                    rest(SETTLES_S)
                before, told = memory(node.pid), list[float]()
                over = threading.Event()
                watching = threading.Thread(target=_watch, args=(node.pid, over, told))
                watching.start()
                began = time.monotonic()
                answers = asyncio.run(_knock(at, Path(home, "keys"), count, together))
                seconds = time.monotonic() - began
                over.set()
                watching.join()
                rest(SETTLES_S)
                after = memory(node.pid)
            finally:
                node.terminate()
                node.wait(30)
    most = max(told, default=before)
    return (
        f"{count} strangers in {seconds:.0f} s ({dict(answers)}): {before:.1f} MiB before, "
        f"{most - before:+.1f} at most in the flood, {after - before:+.1f} after it"
    )


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


def memory(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def _watch(pid: int, over: threading.Event, told: list[float]) -> None:
    while not over.wait(0.05):
        told.append(memory(pid))


def main() -> None:
    """Print what a crowd costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--together", type=int, default=24)
    parser.add_argument("--warm", type=int, default=0)
    given = parser.parse_args()
    print(crowd(given.count, given.together, given.warm))


if __name__ == "__main__":
    main()
