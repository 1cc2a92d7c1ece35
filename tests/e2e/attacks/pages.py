"""What other users and other sites may do with the page of a running node."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.contract.faults import pause
from tests.e2e.attacks import bombs
from tests.e2e.attacks.lab import Lab

MARKUP: Final = '<img src=x onerror="alert(1)">'
CONNECTIONS: Final = 100
WAIT_S: Final = 3.0


def asked(
    port: int, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, str]:
    """Return status and text of an answer of the page; headers may name another Host."""
    given = {"Host": f"127.0.0.1:{port}", **(headers or {})}
    call = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
    with contextlib.closing(call):
        call.putrequest(method, path, skip_host=True)
        for key, value in given.items():
            call.putheader(key, value)
        call.endheaders()
        answer = call.getresponse()
        return answer.status, answer.read(1 << 20).decode("utf-8", "replace")


async def page(folder: Path) -> int:
    """Read and command a page as other users and other sites would."""
    data = folder / "images"
    bombs.plain(data).rename(data / MARKUP)
    settings = ("--set", f"data.path={data}", "--set", "data.shots=1")
    async with Lab(folder, settings=(*settings, "--set", "rounds.min_interval_s=1")) as lab:
        port = int((await lab.status()).page.rstrip("/").rsplit(":", 1)[1])
        (file,) = (one for one in (folder / "a").rglob("page-token") if one.is_file())
        token = file.read_text().strip()
        text = (await asyncio.to_thread(asked, port, "/"))[1]
        text += (await asyncio.to_thread(asked, port, "/metrics"))[1]
        for what, secret in {
            "the token": token,
            "paths of images": str(data),
            "paths of the state": str(folder / "a"),
            "class names as markup": MARKUP,
        }.items():
            lab.say(f"{what} without a token", secret in text, fine=secret not in text)
        own = {"Authorization": f"Bearer {token}"}
        here = {"Origin": f"http://127.0.0.1:{port}"}
        for what, headers in {
            "without a token": here,
            "with a cookie": {**here, "Cookie": f"fednode_token_{port}={token}"},
            "with a token of another kind": {**here, "Authorization": f"Basic {token}"},
            "by a name that was bound anew": {**own, "Host": f"evil.example:{port}"},
            "with a stale token": {**here, "Authorization": own["Authorization"][:-3] + "AAA"},
        }.items():
            code, _ = await asyncio.to_thread(asked, port, "/command/pause", headers, "POST")
            lab.say(f"pause {what}", code, fine=code in {401, 403})
        for path in ("/%2e%2e/%2e%2e/etc/passwd", "/page.css/../../web.py", "/image/99999/9"):
            code, text = await asyncio.to_thread(asked, port, path, own)
            lab.say(path, code, fine=code in {400, 403, 404} and "root:" not in text)
        await connections(lab, port, token)
        await lab.rounds(3)
        return lab.wrong


async def connections(lab: Lab, port: int, token: str) -> None:
    """Hold connections of visitors without a token; see whether the operator is answered."""
    held, begun = [], Counter[str]()
    said = f"GET /status HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    try:
        for _ in range(CONNECTIONS):
            with contextlib.suppress(OSError):
                one = socket.create_connection(("127.0.0.1", port), WAIT_S)
                held.append(one)
                one.sendall(f"{said}\r\n".encode())
        await pause(2.0)
        for one in held:
            one.setblocking(False)
            try:
                begun[one.recv(12).decode("latin1") or "closed"] += 1
            except OSError as fault:
                begun[type(fault).__name__] += 1

        def operator() -> str:
            with socket.create_connection(("127.0.0.1", port), 10.0) as one:
                one.sendall(f"{said}Authorization: Bearer {token}\r\n\r\n".encode())
                return one.recv(12).decode("latin1")

        found = await asyncio.to_thread(operator)
        lab.say(
            f"{CONNECTIONS} connections without a token {dict(begun)}, the operator's",
            found,
            fine=found == "HTTP/1.1 200",
        )
    finally:
        for one in held:
            one.close()
