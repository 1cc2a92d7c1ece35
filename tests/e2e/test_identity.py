"""Real daemons over mutual TLS: they meet, move, and one is removed; folders of invite --out."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from fednode.app.create import mesh_key_file
from fednode.enrolment.ledger import FOLDER, Ledger
from fednode.errors import IdentityError
from fednode.identity import keys
from fednode.identity.certificates import Chain
from fednode.identity.identity import NodeIdentity
from fednode.transports.ports import free_ports
from tests.contract.faults import pause
from tests.daemons import CLOSED, ENDLESS, GUARD_S, POLL_S, Nodes, alive, states
from tests.unit.commands.run import Fednode

pytestmark = pytest.mark.e2e
PACED = (*CLOSED, *ENDLESS)


def go_to_desk_of_a(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the operator of node a, who has the mesh key, in the folder where commands are typed."""
    folder = nodes.folder / "files"
    folder.mkdir()
    shutil.copy(nodes.peers, folder)
    text = yaml.safe_dump({"name": "a", "state_dir": str(nodes.folder / "a")})
    (folder / "node.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("HOME", str(nodes.folder))
    keys.store(mesh_key_file("m"), nodes.keys.mesh_key)
    monkeypatch.chdir(folder)


async def test_nodes_meet_through_each_other_and_a_removed_one_is_out(
    tmp_path: Path, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """peers.yaml lists a alone: everybody else is known by certificates that gossip carries."""
    nodes = Nodes(tmp_path, "abc", PACED, listed="a")
    at, place = nodes.address, nodes.place("a")

    def words(name: str) -> tuple[str, str]:
        return ("--set", f"advertise={at[name]}")

    async with (
        nodes.running("a", *words("a")),
        nodes.running("b", *words("b")),
        nodes.running("c", *words("c")) as c,
    ):
        await nodes.until("c", lambda reply: alive(reply, "a", "b"))
        before = await nodes.until("a", lambda reply: alive(reply, "b", "c"))
        await nodes.until("a", lambda reply: reply.round > before.round + 5)
        for name in at:
            reply = json.loads(await fednode.types("status", name, *place, "--format", "json"))
            known = {peer["name"]: peer["address"] for peer in reply["peers"]}
            assert {name: at[name]} | known == at
        replies = json.loads(await fednode.types("status", *place, "--format", "json"))
        assert [reply["name"] for reply in replies] == ["a", "b", "c"]
        lines = (await fednode.types("logs", *place, "--format", "json")).splitlines()
        assert {json.loads(one)["node"] for one in lines} == {"a", "b", "c"}
        assert await fednode.types("pause", "a", *place) == "a was asked to pause"
        assert await fednode.types("resume", "a", *place) == "a was asked to resume"
        checked = await fednode.types("check", *nodes.words("a", *words("a"))[1:])
        assert f"note: a runs at {at['a']}." in checked
        go_to_desk_of_a(nodes, monkeypatch)
        await fednode.types("remove", "c", "--yes")
        for name in "ab":
            await nodes.until(name, lambda reply: states(reply).get("c") == "revoked")
        # c is shown the proof at its next call; so it ends.
        async with asyncio.timeout(GUARD_S):
            assert await c.ended() == IdentityError.exit_code
        assert "The mesh 'm' revoked the key of this node, 'c'" in c.last_line()
    async with nodes.running("a", *words("a")), nodes.running("b", *words("b")):
        for name, other in ("ab", "ba"):
            await nodes.until(name, lambda reply: states(reply) == {other: "alive"})  # noqa: B023


async def test_a_node_that_was_down_when_a_site_was_removed_tells_the_mesh_at_its_next_start(
    tmp_path: Path, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(tmp_path, "abc", PACED)
    go_to_desk_of_a(nodes, monkeypatch)
    Ledger(tmp_path / "a" / FOLDER).record("c", nodes.keys.id("c"))
    async with nodes.running("b"), nodes.running("c") as c:
        async with nodes.running("a"):
            await nodes.until("a", lambda reply: alive(reply, "b", "c"))
        said = await fednode.types("remove", "c", "--yes")
        assert said == "c is revoked; a tells the others at its next start."
        await nodes.until("b", lambda reply: alive(reply, "c"))
        async with nodes.running("a"):
            await nodes.until("b", lambda reply: states(reply)["c"] == "revoked")
            async with asyncio.timeout(GUARD_S):
                assert await c.ended() == IdentityError.exit_code


async def test_a_certificate_that_ends_soon_is_renewed_while_the_node_runs(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, "ab", PACED)
    # A certificate begins an hour before it is signed, so the last third of this one has begun.
    nodes.keys.write(tmp_path / "b", "b", 20 / (24 * 60))
    soon = NodeIdentity(tmp_path / "b").end

    def renewed(reply: Any) -> bool:
        days = (NodeIdentity(tmp_path / "b").end - soon) / (24 * 3600)
        return days > 80 and alive(reply, "a")

    async with nodes.running("a"):
        await nodes.until("a", bool)
        async with nodes.running("b"):
            reply = await nodes.until("b", renewed)
            assert "certificate" not in "".join(reply.warnings)
            later = await nodes.until("a", lambda one: one.round > reply.round + 5)
            assert alive(later, "b")
            async with asyncio.timeout(GUARD_S), nodes.client("a") as client:
                known = soon
                while known <= soon:  # a knows the new certificate, for its next start
                    (of_b,) = await client.peers(nodes.address["a"])
                    known = Chain.unpack(of_b.certificates).own.ends if of_b.certificates else 0.0
                    await pause(POLL_S)


async def test_a_node_that_restarts_at_another_address_is_found_again(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, "ab", PACED)
    new, own = f"127.0.0.1:{free_ports(1)[0]}", tmp_path / "own"
    own.mkdir()
    nodes.write_peers(own, {**nodes.address, "b": new})

    def found(reply: Any) -> bool:
        (peer,) = reply.peers
        return (peer.address, peer.state, peer.unreached) == (new, "alive", "")

    async with nodes.running("a"):
        async with nodes.running("b"):
            await nodes.until("a", lambda reply: alive(reply, "b"))
        # a's peers.yaml has the old address
        async with nodes.running("b", "--peers", str(own / "peers.yaml")):
            seen = await nodes.until("a", found)
            later = await nodes.until("a", lambda one: one.round > seen.round + 20)
            assert found(later)


async def test_a_node_at_a_name_that_does_not_resolve_is_told_and_doubted_no_more(
    tmp_path: Path, fednode: Fednode
) -> None:
    """Its peers cannot call it, and it calls them: all sides say so, and nothing comes and goes."""
    nodes = Nodes(tmp_path, "abc", PACED)
    away = (
        *("--set", "advertise=no.such.host.invalid:7443"),
        *("--set", f"listen={nodes.address['c']}"),
    )
    wrong = "no.such.host.invalid:7443 has a name that does not resolve"

    def suspicions() -> int:
        log = (tmp_path / "a" / "fednode.log").read_text()
        return log.count('"c is suspect')

    async with nodes.running("a"), nodes.running("b"), nodes.running("c", *away):
        told = await nodes.until("c", lambda reply: wrong in "".join(reply.warnings))
        assert "cannot reach this node at no.such.host.invalid:7443: " in told.warnings[0]
        seen = await nodes.until("a", lambda reply: len(reply.warnings) > 0)
        assert seen.warnings[0].startswith("c speaks, but this node cannot reach it: ")
        assert wrong in seen.warnings[0]
        before = suspicions()
        later = await nodes.until("a", lambda one: one.round > seen.round + 40)
        assert alive(later, "c")
        assert suspicions() == before <= 2
        asked = ("check", *nodes.place("c"), "--name", "c", *away, *CLOSED[:2])
        said = await fednode.types(*asked, code=2)
        assert "note: c runs at no.such.host.invalid:7443." in said
        assert "the name no.such.host.invalid does not resolve here" in said
        assert f"fault: a cannot reach c: {wrong}." in said.splitlines()
