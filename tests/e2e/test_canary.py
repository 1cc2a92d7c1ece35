"""Processes: no planted name of a file, folder, patient or class leaves its own site.

tests/unit/app/test_canary.py searches every channel, in one process, and finds planted defects.
Here node a holds the planted images and node b the built-in ones; they speak mutual TLS. All that b
has at the end is searched: what a's node service answers to b's key, b's whole state directory
(history, prompts, log) and b's output. So is a's page without a token.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from fednode.observe.client import Client
from tests.daemons import Nodes
from tests.unit.app.canary import ASKED, damage, found, plant
from tests.unit.observe.pages import DOCUMENTS

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
WORDS = (
    *("--set", "policy.name=promptfl", "--set", "rounds.max=0", "--set", "data.shots=2"),
    *("--set", "rounds.min_interval_s=0.2", "--set", "membership.preset=local"),
    *("--set", "tuning.context_length=4"),
)


async def read_page(url: str) -> bytes:
    """Return the page, its documents and the metrics, as a visitor without a token."""
    async with aiohttp.ClientSession() as web:
        seen = b""
        for path in ("", *DOCUMENTS, "metrics"):
            async with web.get(url + path) as answer:
                assert answer.status == 200
                seen += await answer.read()
    return seen


async def served(client: Client, address: str) -> bytes:
    """Return all that the node service at an address answers, but for its operator's commands."""
    return b"".join([await ask(client, address) for ask in ASKED.values()])


async def test_no_planted_name_leaves_its_site(tmp_path: Path) -> None:
    root, planted = await asyncio.to_thread(plant, tmp_path)
    assert planted >= 200
    nodes = Nodes(tmp_path, "ab", WORDS)
    at = nodes.address["a"]
    own = ("--set", f"data.path={root}", "--set", "data.tell_classes=false")
    shown = ("--set", "page.listen=127.0.0.1:0")
    async with nodes.running("a", *own, *shown), nodes.running("b"):
        await nodes.until("a", lambda reply: reply.round >= 2)
        # Images that go, and images that are damaged, while the node runs are recorded, too.
        await asyncio.to_thread(damage, root)
        before = await nodes.until("b", lambda reply: reply.round >= 3)
        await nodes.until("b", lambda reply: reply.round >= before.round + 2)
        async with nodes.client("a") as own_key:
            operator = await served(own_key, at)
            page = await read_page((await own_key.status(at)).page)
        async with nodes.client("b") as members_key:
            member = await served(members_key, at)
    held = b"".join(one.read_bytes() for one in (tmp_path / "b").rglob("*") if one.is_file())
    assert len(found(operator)) >= 2, "the operator must see names, or nothing is tested"
    for place, content in {
        "what a member is answered": member,
        "the page without a token": page,
        "the state directory of b": held,
        "the output of b": (tmp_path / "b.log").read_bytes(),
    }.items():
        assert len(content) > 100, place
        assert found(content) == set(), place
