"""Real daemons over mutual TLS: a state directory is copied, and the copy lives a second time."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from fednode.learn.privacy import read_account
from fednode.transports.ports import free_ports
from tests.contract.faults import pause
from tests.daemons import GUARD_S, running
from tests.e2e.test_identity import Say, alive, fednode, keyed, start, until
from tests.unit.commands.run import Fednode

__all__ = ["Fednode", "fednode"]
pytestmark = pytest.mark.e2e
PRIVATE = ("--set", "privacy.clip=1", "--set", "privacy.noise=1")


def warned(reply: Any, words: str) -> bool:
    return any(words in one for one in reply.warnings)


@pytest.mark.parametrize("private", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_restored_backup_says_so_and_is_paused_until_its_operator_decides(
    private: bool, tmp_path: Path, fednode: Say
) -> None:
    _, at = await asyncio.to_thread(keyed, tmp_path, "ab")
    more = PRIVATE if private else ()

    def words(name: str) -> tuple[str, ...]:
        return start(tmp_path, name, *more)

    async with running(tmp_path, "b", *words("b")):
        async with running(tmp_path, "a", *words("a")):
            await until(tmp_path, at["a"], "a", lambda reply: alive(reply, "b") and reply.round > 2)
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        async with running(tmp_path, "a", *words("a")):
            last = await until(tmp_path, at["a"], "a", lambda reply: reply.round > 20)
        shutil.rmtree(tmp_path / "a")
        shutil.move(tmp_path / "copy", tmp_path / "a")
        before = sum(read_account(tmp_path / "a")[0].values())
        async with running(tmp_path, "a", *words("a")):
            said = await until(
                tmp_path, at["a"], "a", lambda reply: warned(reply, "this state directory is older")
            )
            assert any(event.kind == "state.older" for event in said.events) or private
            if private:
                assert said.life == "paused"
                async with asyncio.timeout(GUARD_S):  # the file may be behind the status
                    while sum(read_account(tmp_path / "a")[0].values()) <= before:
                        await pause(0.1)
                own = ("--peers", tmp_path / "peers.yaml", "--state", tmp_path / "a")
                told = await fednode("resume", at["a"], "--older-state", *own)
                assert told == "a was asked to resume --older-state"
            reply = await until(tmp_path, at["a"], "a", lambda reply: reply.round > last.round + 3)
            assert reply.life == "running"
    assert not read_account(tmp_path / "a")[1]


@pytest.mark.slow
async def test_two_live_processes_of_one_key_are_named_at_its_peer(
    tmp_path: Path, fednode: Say
) -> None:
    _, at = await asyncio.to_thread(keyed, tmp_path, "ab")
    async with contextlib.AsyncExitStack() as nodes:
        for name in "ab":
            await nodes.enter_async_context(running(tmp_path, name, *start(tmp_path, name)))
        await until(tmp_path, at["b"], "b", lambda reply: alive(reply, "a") and reply.round > 2)
        shutil.copytree(tmp_path / "a", tmp_path / "twin", ignore=shutil.ignore_patterns("lock"))
        (port,) = free_ports(1)
        words = start(tmp_path, "a", "--set", f"listen=127.0.0.1:{port}")
        at_twin = [str(tmp_path / "twin") if one == str(tmp_path / "a") else one for one in words]
        await nodes.enter_async_context(running(tmp_path, "twin", *at_twin))
        named = "two processes speak with the key of a"
        reply = await until(tmp_path, at["b"], "b", lambda reply: warned(reply, named))
        assert [text for text in reply.warnings if named in text]
