"""What the page's operator does with newcomers, on a founder that runs in this process."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from fednode.admission import link as links
from fednode.admission.tokens import Knocked
from fednode.admission.words import words_of
from fednode.app.inviting import Inviting, link_for
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.observe.admitting import Site
from tests.unit.app.founders import MESH, admits, founded, identity_of
from tests.unit.identity.people import LISTED

AWAY = "127.0.0.1:9"


async def settled(desk: Inviting) -> None:
    """Wait until the words of all sites shown are known."""
    async with asyncio.timeout(180):
        while any(not site.words for site in (*desk.waiting(), *desk.members())) or (
            not desk.mesh_words()
        ):
            working = desk._working
            assert working is not None
            await working


async def test_a_site_is_invited_and_admitted_by_the_words_that_were_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plan = founded(tmp_path, monkeypatch)
    async with admits(plan) as network:
        admission = network.admission
        assert admission is not None
        desk = Inviting(identity_of(plan), admission)
        assert [desk.open] == [True]
        made = await desk.invite("b", approve=True)
        link = links.read(made.link)
        assert (link.name, link.mesh, link.addresses) == ("b", MESH, (plan.address,))
        assert made.words == words_of(keys.read_group(str(plan.peers.mesh_key)))
        token = link.token.hex()
        with pytest.raises(Knocked):
            admission.register.enrol(LISTED["b"], MESH, "b", AWAY, token)
        assert desk.waiting() == [Site("b", AWAY, LISTED["b"])]
        await settled(desk)
        assert desk.waiting()[0].words == words_of(keys.read_group(LISTED["b"]))
        assert desk.mesh_words() == made.words
        (own,) = desk.members()
        assert (own.name, own.words) == ("a", words_of(keys.read_group(identity_of(plan).id)))
        with pytest.raises(ConfigError, match="The key that you saw waits as 'b' no more"):
            await desk.settle("b", LISTED["a"], good=True)
        assert (await desk.settle("b", LISTED["b"], good=True)).startswith("b may join now")
        assert admission.register.enrol(LISTED["b"], MESH, "b", AWAY, token)
        with pytest.raises(ConfigError, match="'b' is a member already"):
            await desk.invite("b", approve=False)
        made = await desk.invite("c", approve=True)
        again = links.read(made.link).token.hex()
        with pytest.raises(Knocked):
            admission.register.enrol(keys.grouped(bytes(32)), MESH, "c", AWAY, again)
        assert await desk.settle("c", keys.grouped(bytes(32)), good=False) == (
            "c was refused, and its link has ended."
        )
        assert desk.waiting() == []
        admission.right = b""
        assert [desk.open] == [False]
    assert "invited c" in caplog.text
    assert token not in caplog.text
    assert made.link not in caplog.text


def test_a_link_for_a_bad_name_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fednode.app.admission import register_of

    plan = founded(tmp_path, monkeypatch)
    register = register_of(plan.state, identity_of(plan))
    for site in ("", "B", "x" * 64, "b c"):
        with pytest.raises(ConfigError, match="SITE is "):
            link_for(site, plan, identity_of(plan), register)
