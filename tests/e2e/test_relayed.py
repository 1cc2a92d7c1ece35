"""Two daemons that open no port and have leases: the introducer's port is their only relay."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fednode.transports.ports import free_ports
from fednode_bootstrap.invite import TOKEN, invite
from tests.contract.faults import pause
from tests.e2e.test_identity import POLL_S, Say, alive, fednode, running, start, until

pytestmark = pytest.mark.e2e
__all__ = ["fednode"]
QUICK = ("--set", "tuning.kind=closed-form")


async def test_nodes_without_ports_enrol_restart_are_asked_checked_and_revoked(
    tmp_path: Path, fednode: Say
) -> None:
    """After all nodes restarted, nobody has told anybody an id: they know it from before."""
    gate = f"127.0.0.1:{free_ports(1)[0]}"
    relayed = "".join(f"\n  - {{name: {name}, address: relay}}" for name in "ab")
    template = f"mesh: m\nintroducer: {gate}\npeers:{relayed}\n"
    await asyncio.to_thread((tmp_path / "template.yaml").write_text, template)
    await asyncio.to_thread(
        invite, tmp_path / "book", tmp_path / "template.yaml", tmp_path, relay=True
    )
    book = ("--state", str(tmp_path / "book"), "--mesh", "m")
    asks = ("--peers", str(tmp_path / "peers.yaml"), "--state", str(tmp_path / "a"))

    def words(name: str) -> tuple[str, ...]:
        token = (tmp_path / f"{TOKEN}{name}").read_text().strip()
        return start(tmp_path, name, "--set", f"token={token}")

    async def met() -> None:
        for name in "ab":
            other = "b" if name == "a" else "a"
            await until(tmp_path, places[name], name, partial(alive_in, other))

    serve = ("introducer", "run", "--relay", *book, "--listen", gate)
    async with running(tmp_path, "introducer", *serve):
        async with running(tmp_path, "a", *words("a")), running(tmp_path, "b", *words("b")):
            ids = {}
            for name in "ab":
                key = ("--mesh", "m", "--name", name, "--state", str(tmp_path / name))
                async with asyncio.timeout(180):
                    while "lease" not in (shown := await said_of(fednode, *key)):
                        await pause(POLL_S)
                ids[name] = shown.splitlines()[0]
            places = {name: f"relay:{id}" for name, id in ids.items()}
            await met()
        async with running(tmp_path, "a", *words("a")), running(tmp_path, "b", *words("b")):
            await met()
            log = await asyncio.to_thread((tmp_path / "a" / "fednode.log").read_text)
            assert "relay.none" not in log, "a node without a lease asks no relay for a place"
            assert (await fednode("status", "b", *asks)).startswith("b of mesh m at relay")
            whole = (await fednode("status", *asks)).splitlines()
            assert [line.split()[:3:2] for line in whole[1:3]] == [
                ["a", "running"],
                ["b", "running"],
            ]
            checked = await fednode("check", *asks, "--name", "a", "--live", *QUICK)
            assert f"note: The relay {gate}: open." in checked
            assert "b reaches a" in checked
            line = await fednode("introducer", "revoke", *book, "--name", "b", "--id", ids["b"])
            assert ids["b"] in await fednode("identity", "revoke", "a", line, *asks)
            await until(
                tmp_path,
                places["a"],
                "a",
                lambda reply: [peer.state for peer in reply.peers] == ["revoked"],
            )
            # The relay has learnt it, too, and b gets no place there.
            file = tmp_path / "b" / "fednode.log"
            async with asyncio.timeout(180):
                while "relay.none" not in await asyncio.to_thread(file.read_text):
                    await pause(POLL_S)


def alive_in(name: str, reply: Any) -> bool:
    return alive(reply, name)


async def said_of(fednode: Say, *key: str) -> str:
    """Return what `identity show` prints; "" before the key is there."""
    try:
        return await fednode("identity", "show", *key)
    except AssertionError:
        return ""
