"""Real daemons over mutual TLS: they meet, move, and one is removed; folders of invite --out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from fednode.app.client import client_of
from fednode.app.create import mesh_key_file
from fednode.enrolment.ledger import FOLDER, Ledger
from fednode.errors import FednodeError, IdentityError
from fednode.identity import keys
from fednode.identity.certificates import Chain
from fednode.identity.identity import NodeIdentity
from fednode.settings.peers import load_peers
from fednode.transports.ports import free_ports
from tests.contract.faults import pause
from tests.daemons import GUARD_S, running
from tests.unit.commands.run import Fednode
from tests.unit.identity.people import SmallMesh

pytestmark = pytest.mark.e2e
POLL_S = 0.05
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


def keyed(folder: Path, names: str, listed: str = "") -> tuple[SmallMesh, dict[str, str]]:
    """Write certificates of nodes and one peers.yaml; return the mesh and the nodes' addresses.

    listed: the nodes that peers.yaml lists, if not all.
    """
    mesh = SmallMesh("m")
    at = {
        name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)
    }
    for name in names:
        mesh.write(folder / name, name)
    write_peers(folder, mesh, {name: at[name] for name in listed or names})
    return mesh, at


def write_peers(folder: Path, mesh: SmallMesh, at: dict[str, str]) -> None:
    entries = [{"name": name, "address": address} for name, address in at.items()]
    tree = {"mesh": mesh.mesh, "mesh_key": mesh.mesh_key_text, "peers": entries}
    (folder / "peers.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")


def files_of_a(folder: Path) -> None:
    """Write the folder in which the operator of node a types commands."""
    (folder / "files").mkdir()
    shutil.copy(folder / "peers.yaml", folder / "files")
    text = yaml.safe_dump({"name": "a", "state_dir": str(folder / "a")})
    (folder / "files" / "node.yaml").write_text(text, encoding="utf-8")


async def test_nodes_meet_through_each_other_and_a_removed_one_is_out(
    tmp_path: Path, fednode: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """peers.yaml lists a alone: everybody else is known by certificates that gossip carries."""
    mesh, at = await asyncio.to_thread(keyed, tmp_path, "abc", "a")
    monkeypatch.setenv("HOME", str(tmp_path))
    await asyncio.to_thread(keys.store, mesh_key_file("m"), mesh.mesh_key)

    def words(name: str) -> tuple[str, ...]:
        return start(tmp_path, name, "--set", f"advertise={at[name]}")

    peers = ("--peers", str(tmp_path / "peers.yaml"), "--state", str(tmp_path / "a"))
    async with (
        running(tmp_path, "a", *words("a")),
        running(tmp_path, "b", *words("b")),
        running(tmp_path, "c", *words("c")) as c,
    ):
        await until(tmp_path, at["c"], "c", lambda reply: alive(reply, "a", "b"))
        before = await until(tmp_path, at["a"], "a", lambda reply: alive(reply, "b", "c"))
        await until(tmp_path, at["a"], "a", lambda reply: reply.round > before.round + 5)
        for name in at:
            reply = json.loads(await fednode("status", name, *peers, "--format", "json"))
            known = {peer["name"]: peer["address"] for peer in reply["peers"]}
            assert {name: at[name]} | known == at
        replies = json.loads(await fednode("status", *peers, "--format", "json"))
        assert [reply["name"] for reply in replies] == ["a", "b", "c"]
        lines = (await fednode("logs", *peers, "--format", "json")).splitlines()
        assert {json.loads(one)["node"] for one in lines} == {"a", "b", "c"}
        assert await fednode("pause", "a", *peers) == "a was asked to pause"
        assert await fednode("resume", "a", *peers) == "a was asked to resume"
        assert f"note: a runs at {at['a']}." in await fednode("check", *words("a")[1:])
        await asyncio.to_thread(files_of_a, tmp_path)
        monkeypatch.chdir(tmp_path / "files")
        await fednode("remove", "c", "--yes")
        for name in "ab":
            await until(
                tmp_path, at[name], name,
                lambda reply: {"c": "revoked"}.items()
                <= {peer.name: peer.state for peer in reply.peers}.items(),
            )  # fmt: skip
        # c is shown the proof at its next call; so it ends.
        async with asyncio.timeout(GUARD_S):
            assert await c.ended() == IdentityError.exit_code
        assert "The mesh 'm' revoked the key of this node, 'c'" in c.last_line()
    async with running(tmp_path, "a", *words("a")), running(tmp_path, "b", *words("b")):
        for name, other in (("a", "b"), ("b", "a")):
            reply = await until(tmp_path, at[name], name, partial(all_alive, names=other))
            assert [peer.name for peer in reply.peers] == [other]


async def test_a_node_that_was_down_when_a_site_was_removed_tells_the_mesh_at_its_next_start(
    tmp_path: Path, fednode: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, at = await asyncio.to_thread(keyed, tmp_path, "abc")
    monkeypatch.setenv("HOME", str(tmp_path))
    await asyncio.to_thread(keys.store, mesh_key_file("m"), mesh.mesh_key)
    await asyncio.to_thread(files_of_a, tmp_path)
    monkeypatch.chdir(tmp_path / "files")
    ledger = Ledger(tmp_path / "a" / FOLDER)
    await asyncio.to_thread(ledger.record, "c", mesh.id("c"), at["c"])

    def knows(state: str) -> Callable[[Any], bool]:
        return lambda reply: {peer.name: peer.state for peer in reply.peers}["c"] == state

    async with (
        running(tmp_path, "b", *start(tmp_path, "b")),
        running(tmp_path, "c", *start(tmp_path, "c")) as c,
    ):
        async with running(tmp_path, "a", *start(tmp_path, "a")):
            await until(tmp_path, at["a"], "a", lambda reply: alive(reply, "b", "c"))
        said = await fednode("remove", "c", "--yes")
        assert said == "c is revoked; a tells the others at its next start."
        await until(tmp_path, at["b"], "b", knows("alive"))
        async with running(tmp_path, "a", *start(tmp_path, "a")):
            await until(tmp_path, at["b"], "b", knows("revoked"))
            async with asyncio.timeout(GUARD_S):
                assert await c.ended() == IdentityError.exit_code


async def test_a_certificate_that_ends_soon_is_renewed_while_the_node_runs(tmp_path: Path) -> None:
    mesh, at = await asyncio.to_thread(keyed, tmp_path, "ab")
    # A certificate begins an hour before it is signed, so the last third of this one has begun.
    await asyncio.to_thread(mesh.write, tmp_path / "b", "b", 20 / (24 * 60))
    soon = NodeIdentity(tmp_path / "b").end

    def renewed(reply: Any) -> bool:
        days = (NodeIdentity(tmp_path / "b").end - soon) / (24 * 3600)
        return days > 80 and alive(reply, "a")

    async with running(tmp_path, "a", *start(tmp_path, "a")):
        await until(tmp_path, at["a"], "a", bool)
        async with running(tmp_path, "b", *start(tmp_path, "b")):
            reply = await until(tmp_path, at["b"], "b", renewed)
            assert "certificate" not in "".join(reply.warnings)
            later = await until(tmp_path, at["a"], "a", lambda one: one.round > reply.round + 5)
            assert alive(later, "b")
            peers = load_peers(tmp_path / "peers.yaml")
            async with asyncio.timeout(GUARD_S), client_of(peers, tmp_path / "a") as client:
                known = soon
                while known <= soon:  # a knows the new certificate, for its next start
                    (of_b,) = await client.peers(at["a"])
                    known = Chain.unpack(of_b.certificates).own.ends if of_b.certificates else 0.0
                    await pause(POLL_S)


async def test_a_node_that_restarts_at_another_address_is_found_again(tmp_path: Path) -> None:
    mesh, at = await asyncio.to_thread(keyed, tmp_path, "ab")
    new, own = f"127.0.0.1:{free_ports(1)[0]}", tmp_path / "own"
    await asyncio.to_thread(own.mkdir)
    await asyncio.to_thread(write_peers, own, mesh, {**at, "b": new})

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


async def test_a_node_at_a_name_that_does_not_resolve_is_told_and_doubted_no_more(
    tmp_path: Path, fednode: Say
) -> None:
    """Its peers cannot call it, and it calls them: all sides say so, and nothing comes and goes."""
    _, at = await asyncio.to_thread(keyed, tmp_path, "abc")
    away = ("--set", "advertise=no.such.host.invalid:7443", "--set", f"listen={at['c']}")
    wrong = "no.such.host.invalid:7443 has a name that does not resolve"

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
        said = await fednode(*asked, code=2)
        assert "note: c runs at no.such.host.invalid:7443." in said
        assert "the name no.such.host.invalid does not resolve here" in said
        assert f"fault: a cannot reach c: {wrong}." in said.splitlines()
