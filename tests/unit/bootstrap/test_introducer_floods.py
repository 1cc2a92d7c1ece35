"""A visitor of the introducer says little, and in nobody's way."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from pathlib import Path

import pytest

from fednode.admission import service
from fednode.errors import Refused, Unreachable
from fednode.identity.enrol import enrol, introducer
from fednode.identity.identity import Identity
from fednode.transports import lines
from fednode_bootstrap.introducer import Roster
from tests.e2e.attacks.http2 import (
    DATA,
    END_HEADERS,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    frame,
    request,
)
from tests.unit.bootstrap.test_introducer import ADDRESS, GUARD_S, knock, served
from tests.unit.identity.people import MESH

__all__ = ["served"]


@pytest.mark.parametrize(
    "said",
    [
        frame(PING, payload=bytes(8)) * 300,
        frame(SETTINGS) * 300,
        frame(HEADERS, END_HEADERS, 1, request("/x")) + frame(DATA, 0, 1, bytes(16_000)) * 3,
    ],
)
async def test_a_visitor_that_floods_is_refused_for_a_while(
    served: tuple[Roster, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(lines, "VISIT_REST_S", 0.2)
    made, at = served
    reader, writer = await knock(at)
    writer.write(PREFACE + frame(SETTINGS) + said)
    async with asyncio.timeout(service.VISIT_S / 2):
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass
        writer.close()
        one = Identity(tmp_path / "n1", MESH, "n1")
        token = made.tokens.new()
        while one.lease is None:
            with contextlib.suppress(Unreachable):
                await enrol(one, introducer(made.mesh_key, at), ADDRESS, token)


async def test_a_visitor_has_two_calls_of_four_kilobytes(
    served: tuple[Roster, str], tmp_path: Path
) -> None:
    made, at = served
    reader, writer = await knock(at)
    writer.write(PREFACE + frame(SETTINGS))
    async with asyncio.timeout(GUARD_S):
        said = await reader.read(1000)
    settings = said[9 : 9 + int.from_bytes(said[:3], "big")]
    cuts = range(0, len(settings), 6)
    pairs = dict(struct.unpack(">HI", settings[cut : cut + 6]) for cut in cuts)
    assert pairs[3] == service.VISIT_STREAMS  # the most streams at a time
    writer.close()
    one = Identity(tmp_path / "n1", MESH, "n1")
    long = "x" * service.VISIT_MESSAGE_BYTES
    with pytest.raises(Refused, match="larger than max"):
        await enrol(one, introducer(made.mesh_key, at), ADDRESS, long)
    await enrol(one, introducer(made.mesh_key, at), ADDRESS, made.tokens.new())
