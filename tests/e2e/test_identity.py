"""Real daemons over mutual TLS: enrolled by an introducer, named by id, rotated, revoked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fednode.app.network import client_of
from fednode.errors import FednodeError, IdentityError
from fednode.settings.peers import load_peers
from fednode.transports.ports import free_ports
from fednode_bootstrap.process import Daemon
from tests.contract.faults import pause
from tests.unit.commands.run import Fednode

pytestmark = pytest.mark.e2e
GUARD_S = 180.0
POLL_S = 0.05
TETHER = (sys.executable, "-m", "fednode_bootstrap.tether", "fednode.cli")
PACED = (
    *("--set", "tuning.kind=closed-form", "--set", "rounds.max=0"),
    *("--set", "rounds.min_interval_s=0.1", "--set", "membership.preset=local"),
)


Say = Callable[..., Awaitable[str]]


@pytest.fixture
def fednode(capsys: pytest.CaptureFixture[str]) -> Say:
    """Return a function that runs a command in this process and returns what it prints."""
    command = Fednode(capsys)

    async def say(*words: str, code: int = 0) -> str:
        # In a thread, because a command may run a loop of its own.
        assert await asyncio.to_thread(command, *words) == code, command.err
        return command.out.strip()

    return say


@contextlib.asynccontextmanager
async def running(folder: Path, name: str, *words: str) -> AsyncIterator[Daemon]:
    daemon = Daemon(name, (*TETHER, *words), folder / f"{name}.log")
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.stop(10.0)


def start(folder: Path, name: str, *more: str) -> tuple[str, ...]:
    peers, state = str(folder / "peers.yaml"), str(folder / name)
    return ("start", "--peers", peers, "--name", name, "--state", state, *PACED, *more)


async def until(folder: Path, address: str, state: str, holds: Callable[[Any], bool]) -> Any:
    """Ask a node again and again, with a key, until something holds of its status."""
    peers = load_peers(folder / "peers.yaml")
    async with asyncio.timeout(GUARD_S), client_of(peers, folder / state) as client:
        while True:
            with contextlib.suppress(FednodeError):
                reply = await client.status(address)
                if holds(reply):
                    return reply
            await pause(POLL_S)


def alive(reply: Any, *names: str) -> bool:
    return {peer.name for peer in reply.peers if peer.state == "alive"} >= set(names)


def all_alive(reply: Any, names: str) -> bool:
    return alive(reply, *names)


async def test_the_commands_that_init_prints_are_a_mesh_with_keys(
    tmp_path: Path, fednode: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but those commands: the keys and ids are where the nodes look for them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    printed = await fednode("init", tmp_path / "mesh", "--tls", "--mesh", "clinic")
    words = [line.split()[1:] for line in printed.splitlines() if line.startswith("  fednode ")]
    starts = [one for one in words if one[0] == "start"]
    assert [one[-1] for one in starts] == ["a", "b", "c"]
    settings = ("tuning.kind=closed-form", "rounds.max=3", "rounds.min_interval_s=0")
    more = [word for one in settings for word in ("--set", one)]
    peers = load_peers(tmp_path / "mesh/peers.yaml")
    own = tmp_path / ".local/state/fednode/clinic/a"
    async with contextlib.AsyncExitStack() as nodes:
        for one in starts:
            await nodes.enter_async_context(running(tmp_path, one[-1], *one, *more))
        for peer in peers.peers:
            reply = await until(
                tmp_path / "mesh", peer.address, str(own), lambda reply: reply.life == "finished"
            )
            assert (reply.rounds_merged, reply.rounds_run) == (3, 3)


async def test_nodes_enrol_meet_through_each_other_and_a_revoked_one_is_out(
    tmp_path: Path, fednode: Say
) -> None:
    book = ("--state", str(tmp_path / "book"), "--mesh", "m")
    key = await fednode("introducer", "key", *book)
    token = await fednode("introducer", "token", *book, "--uses", "3")
    gate, *ports = free_ports(4)
    (tmp_path / "peers.yaml").write_text(f"mesh: m\nintroducer: 127.0.0.1:{gate}\n{key}\n")
    at = {name: f"127.0.0.1:{port}" for name, port in zip("abc", ports, strict=True)}
    for name in at:
        state = str(tmp_path / name)
        await fednode("identity", "new", "--mesh", "m", "--name", name, "--state", state)

    def words(name: str) -> tuple[str, ...]:
        return start(tmp_path, name, "--set", f"advertise={at[name]}", "--set", f"token={token}")

    serve = ("introducer", "run", *book, "--listen", f"127.0.0.1:{gate}")
    async with running(tmp_path, "a", *words("a")), running(tmp_path, "b", *words("b")):
        async with running(tmp_path, "introducer", *serve):
            await until(tmp_path, at["a"], "a", lambda reply: alive(reply, "b"))
            c = Daemon("c", (*TETHER, *words("c")), tmp_path / "c.log")
            await c.start()
            await until(tmp_path, at["c"], "c", lambda reply: alive(reply, "a", "b"))
        # The introducer is off from here on, and nobody misses it.
        before = await until(tmp_path, at["a"], "a", lambda reply: alive(reply, "b", "c"))
        await until(tmp_path, at["a"], "a", lambda reply: reply.round > before.round + 5)
        # No peers.yaml names the nodes, and each knows the names and addresses of all others.
        peers = ("--peers", str(tmp_path / "peers.yaml"), "--state", str(tmp_path / "a"))
        for name in at:
            reply = json.loads(await fednode("status", name, *peers, "--format", "json"))
            assert reply["name"] == name
            known = {peer["name"]: peer["address"] for peer in reply["peers"]}
            assert {name: at[name]} | known == at
        replies = json.loads(await fednode("status", *peers, "--format", "json"))
        assert [reply["name"] for reply in replies] == ["a", "b", "c"]
        lines = (await fednode("logs", *peers, "--format", "json")).splitlines()
        assert {json.loads(one)["node"] for one in lines} == {"a", "b", "c"}
        assert await fednode("pause", "a", *peers) == "a was asked to pause"
        assert await fednode("resume", "a", *peers) == "a was asked to resume"
        said = await fednode("check", "--live", *words("a")[1:])
        for name in "bc":
            assert f"note: {name} reaches a at {at['a']}; the clocks agree." in said
        line = await fednode("introducer", "revoke", *book, "--name", "c")
        await fednode("identity", "revoke", "a", line, *peers)
        for name in "ab":
            await until(
                tmp_path, at[name], name,
                lambda reply: {"c": "revoked"}.items()
                <= {peer.name: peer.state for peer in reply.peers}.items(),
            )  # fmt: skip
        # What c still says is refused with the reason, counted and named; so c ends.
        async with asyncio.timeout(GUARD_S):
            assert await c.ended() == IdentityError.exit_code
        assert "The mesh 'm' revoked the key of this node, 'c'" in c.last_line()
        counted = [await until(tmp_path, at[name], name, lambda _: True) for name in "ab"]
        texts = [event.text for reply in counted for event in reply.events if reply.refused]
        assert any("revoked" in text for text in texts)
    # All nodes restart, the introducer is off, and no peers.yaml names anybody.
    async with running(tmp_path, "a", *words("a")), running(tmp_path, "b", *words("b")):
        for name, other in (("a", "b"), ("b", "a")):
            reply = await until(tmp_path, at[name], name, partial(all_alive, names=other))
            assert [peer.name for peer in reply.peers] == [other]


async def keyed_pair(folder: Path, fednode: Say) -> dict[str, str]:
    """Make keys of nodes a and b, and the peers.yaml that lists them; return their addresses."""
    ports = free_ports(2)
    lines = []
    for name, port in zip("ab", ports, strict=True):
        words = ("--mesh", "m", "--name", name, "--state", str(folder / name))
        line = await fednode("identity", "new", *words)
        lines.append(line.strip().replace("HOST:PORT", f"127.0.0.1:{port}"))
    text = "mesh: m\npeers:\n  " + "\n  ".join(lines) + "\n"
    await asyncio.to_thread((folder / "peers.yaml").write_text, text)
    return {name: f"127.0.0.1:{port}" for name, port in zip("ab", ports, strict=True)}


async def test_a_node_that_restarts_at_another_address_is_found_again(
    tmp_path: Path, fednode: Say
) -> None:
    at, (port,) = await keyed_pair(tmp_path, fednode), free_ports(1)
    new, own = f"127.0.0.1:{port}", tmp_path / "own"
    text = (tmp_path / "peers.yaml").read_text().replace(at["b"], new)
    await asyncio.to_thread(own.mkdir)
    await asyncio.to_thread((own / "peers.yaml").write_text, text)

    def found(reply: Any) -> bool:
        (peer,) = reply.peers
        return (peer.address, peer.state, peer.unreached) == (new, "alive", "")

    async with running(tmp_path, "a", *start(tmp_path, "a")):
        async with running(tmp_path, "b", *start(tmp_path, "b")):
            await until(tmp_path, at["a"], "a", lambda reply: alive(reply, "b"))
        moved = (*start(own, "b"), "--state", str(tmp_path / "b"))
        async with running(tmp_path, "b", *moved):  # a's peers.yaml has the old address
            seen = await until(tmp_path, at["a"], "a", found)
            later = await until(tmp_path, at["a"], "a", lambda one: one.round > seen.round + 20)
            assert found(later)


async def test_ids_name_nodes_and_a_rotated_key_is_followed(tmp_path: Path, fednode: Say) -> None:
    at = await keyed_pair(tmp_path, fednode)
    async with running(tmp_path, "a", *start(tmp_path, "a")):
        async with running(tmp_path, "b", *start(tmp_path, "b")):
            await until(tmp_path, at["a"], "a", lambda reply: alive(reply, "b"))
        await until(tmp_path, at["a"], "a", lambda reply: not alive(reply, "b"))
        words = ("--mesh", "m", "--name", "b", "--state", str(tmp_path / "b"))
        assert "is succeeded by" in await fednode("identity", "rotate", *words)
        async with running(tmp_path, "b", *start(tmp_path, "b")):
            await until(tmp_path, at["a"], "a", lambda reply: alive(reply, "b"))


async def test_a_node_at_a_name_that_does_not_resolve_is_told_and_doubted_no_more(
    tmp_path: Path, fednode: Say
) -> None:
    """Its peers cannot call it, and it calls them: all sides say so, and nothing comes and goes."""
    ports = dict(zip("abc", free_ports(3), strict=True))
    lines = []
    for name, port in ports.items():
        words = ("--mesh", "m", "--name", name, "--state", str(tmp_path / name))
        line = await fednode("identity", "new", *words)
        lines.append(line.strip().replace("HOST:PORT", f"127.0.0.1:{port}"))
    (tmp_path / "peers.yaml").write_text("mesh: m\npeers:\n  " + "\n  ".join(lines) + "\n")
    at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    away = ("--set", "advertise=no.such.host.invalid:7443", "--set", f"listen={at['c']}")
    wrong = "the name no.such.host.invalid does not resolve"

    def suspicions() -> int:
        log = (tmp_path / "a" / "fednode.log").read_text()
        return log.count('"c is suspect')

    async with (
        running(tmp_path, "a", *start(tmp_path, "a")),
        running(tmp_path, "b", *start(tmp_path, "b")),
        running(tmp_path, "c", *start(tmp_path, "c", *away)),
    ):
        told = await until(tmp_path, at["c"], "c", lambda reply: wrong in "".join(reply.warnings))
        assert "cannot reach this node at no.such.host.invalid:7443: " in told.warnings[0]
        seen = await until(tmp_path, at["a"], "a", lambda reply: len(reply.warnings) > 0)
        assert seen.warnings[0].startswith("c speaks, but this node cannot reach it: ")
        assert wrong in seen.warnings[0]
        before = suspicions()
        later = await until(tmp_path, at["a"], "a", lambda one: one.round > seen.round + 40)
        assert {peer.name: peer.state for peer in later.peers}["c"] == "alive"
        assert suspicions() == before <= 2
        peers = ("--peers", str(tmp_path / "peers.yaml"), "--state", str(tmp_path / "c"))
        asked = ("check", *peers, "--name", "c", *away, "--set", "tuning.kind=closed-form")
        said = await fednode(*asked, code=2)  # its port is in use: it runs
        assert "the name no.such.host.invalid does not resolve here" in said
        assert f"fault: a cannot reach c: cannot send to no.such.host.invalid:7443: {wrong}." in (
            said.splitlines()
        )
        said = await fednode(*asked, "--live", code=2)
        assert "note: c runs at no.such.host.invalid:7443." in said
        assert f"fault: a cannot reach c at no.such.host.invalid:7443: {wrong}" in said
        assert "in use" not in said
