"""Real daemons over mutual TLS: a state directory is copied, and the copy lives a second time."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from fednode.learn.privacy import read_account
from fednode.transports.ports import free_ports
from tests.contract.faults import pause
from tests.daemons import CLOSED, ENDLESS, GUARD_S, Nodes, alive
from tests.unit.commands.run import Fednode

pytestmark = pytest.mark.e2e
PACED = (*CLOSED, *ENDLESS)
PRIVATE = ("--set", "privacy.clip=1", "--set", "privacy.noise=1")


def warned(reply: Any, words: str) -> bool:
    return any(words in one for one in reply.warnings)


@pytest.mark.parametrize("private", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_restored_backup_says_so_and_is_paused_until_its_operator_decides(
    private: bool, tmp_path: Path, fednode: Fednode
) -> None:
    nodes = Nodes(tmp_path, "ab", (*PACED, *(PRIVATE if private else ())))
    async with nodes.running("b"):
        async with nodes.running("a"):
            await nodes.until("a", lambda reply: alive(reply, "b") and reply.round > 2)
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        async with nodes.running("a"):
            last = await nodes.until("a", lambda reply: reply.round > 20)
        shutil.rmtree(tmp_path / "a")
        shutil.move(tmp_path / "copy", tmp_path / "a")
        before = sum(read_account(tmp_path / "a")[0].values())
        async with nodes.running("a"):
            said = await nodes.until(
                "a", lambda reply: warned(reply, "this state directory is older")
            )
            assert any(event.kind == "state.older" for event in said.events) or private
            if private:
                assert said.life == "paused"
                async with asyncio.timeout(GUARD_S):  # the file may be behind the status
                    while sum(read_account(tmp_path / "a")[0].values()) <= before:
                        await pause(0.1)
                at = nodes.address["a"]
                told = await fednode.types("resume", at, "--older-state", *nodes.place("a"))
                assert told == "a was asked to resume --older-state"
            reply = await nodes.until("a", lambda reply: reply.round > last.round + 3)
            assert reply.life == "running"
    assert not read_account(tmp_path / "a")[1]


@pytest.mark.slow
async def test_two_live_processes_of_one_key_are_named_at_its_peer(tmp_path: Path) -> None:
    nodes, twin = Nodes(tmp_path, "ab", PACED), tmp_path / "twin"
    async with nodes.all_running():
        await nodes.until("b", lambda reply: alive(reply, "a") and reply.round > 2)
        shutil.copytree(tmp_path / "a", twin, ignore=shutil.ignore_patterns("lock"))
        (port,) = free_ports(1)
        async with nodes.running("a", "--set", f"listen=127.0.0.1:{port}", state=twin):
            named = "two processes speak with the key of a"
            said = await nodes.until("b", lambda reply: warned(reply, named))
    assert sum(named in text for text in said.warnings) == 1
