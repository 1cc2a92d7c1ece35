"""Attacks with a listed key on a live mesh over TLS: honest nodes go on with their rounds."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fednode.core.members.swim import DIGEST
from fednode.core.rounds.catchup import STATE
from fednode.core.types import MemberUpdate, Message
from fednode.errors import FednodeError
from fednode.lab.sim.host import Liar
from fednode.transports.peers import PER_PEER
from fednode.wire import codec
from tests.e2e.attacks.floods import KINDS, flood
from tests.e2e.attacks.http2 import context_of
from tests.e2e.attacks.live import HOSTILE, LIMIT_S, NAMES, descriptors, live, until

pytestmark = pytest.mark.e2e
FAR = 10**6
CONNECTIONS = 8
STREAMS = 40
MOVES = 300
FLOOD_S = 5.0


async def test_a_state_that_is_promised_and_never_sent_stops_nobody(tmp_path: Path) -> None:
    def say(to: str, message: Message) -> list[tuple[str, Message]]:
        if message.phase == STATE:
            return []
        return [(to, replace(message, round=message.round + FAR))]

    async with live(tmp_path, NAMES) as mesh:
        mesh.nodes[HOSTILE].transport.liar = Liar(say)  # type: ignore[attr-defined]
        await mesh.rounds(3)
        assert max(mesh.nodes[name].round for name in mesh.nodes) < FAR


async def test_idle_streams_of_a_member_stop_nobody(tmp_path: Path) -> None:
    async with live(tmp_path) as mesh, contextlib.AsyncExitStack() as held:
        calls: list[grpc.aio.Call] = []
        for _ in range(CONNECTIONS):
            transport = mesh.transport(HOSTILE)
            held.push_async_callback(transport.close)
            channel = await transport.channel(mesh.at["a"], "a")
            held.push_async_callback(channel.close)
            watch = health_pb2_grpc.HealthStub(channel).Watch
            calls += [watch(health_pb2.HealthCheckRequest()) for _ in range(STREAMS)]
        held.callback(lambda: [call.cancel() for call in calls])
        # Each is served by now, or was refused.
        ends = await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)
        assert any(isinstance(end, grpc.aio.AioRpcError) for end in ends)
        await mesh.rounds(3)


async def test_a_member_that_moves_in_each_message_stops_nobody(tmp_path: Path) -> None:
    async with live(tmp_path) as mesh:
        hostile = mesh.transport(HOSTILE)
        before = descriptors()
        for number in range(MOVES):
            where = f"127.0.{number // 250}.{number % 250 + 2}:1"
            said = replace(
                mesh.message("members"),
                facts={DIGEST: "0"},
                members=(MemberUpdate(HOSTILE, "alive", number, where, mesh.ids[HOSTILE]),),
            )
            with contextlib.suppress(FednodeError):
                await hostile.send(mesh.at["a"], codec.encode(said, "float32"), LIMIT_S, "a")
        await mesh.rounds(3)
        # A few for the attacker's own connection, and for its addresses that are dialled.
        assert descriptors() - before < 30
        channels = mesh.nodes["a"].transport._peers
        assert sum(who == HOSTILE for (_, who), _ in channels) <= PER_PEER
        await hostile.close()


async def test_a_member_speaks_for_nobody_else(tmp_path: Path) -> None:
    async with live(tmp_path) as mesh:
        hostile = mesh.transport(HOSTILE)
        said = replace(mesh.message("bye"), sender="b")
        reply = await hostile.send(mesh.at["a"], codec.encode(said, "float32"), LIMIT_S, "a")
        assert codec.decode_ack(reply)[0] == "refused"
        states = {one.name: one.state for one in mesh.nodes["a"].kernel.view().peers}
        assert states["b"] == "alive"
        await hostile.close()


async def test_a_quarantined_member_loses_its_connections(tmp_path: Path) -> None:
    async with live(tmp_path) as mesh:
        hostile = mesh.transport(HOSTILE)
        garbage = [hostile.send(mesh.at["a"], b"zz", LIMIT_S, "a") for _ in range(9)]
        await asyncio.gather(*garbage, return_exceptions=True)
        peers = mesh.nodes["a"].kernel.view  # a commit under way delays the kernel
        await until(lambda: (HOSTILE, "quarantined") in {(p.name, p.state) for p in peers().peers})
        with pytest.raises(FednodeError):
            await hostile.send(mesh.at["a"], b"zz", LIMIT_S, "a")
        assert await hostile.send(mesh.at["b"], b"zz", LIMIT_S, "b")  # a's alone
        await hostile.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ping", "reset", "health", "unfinished", "tiny-records"])
async def test_floods_below_a_call_stop_nobody(tmp_path: Path, kind: str) -> None:
    async with live(tmp_path) as mesh:
        context = context_of(mesh.credential(HOSTILE))
        limiter = mesh.nodes["a"].transport._limits.connections
        assert limiter is not None
        flooding = asyncio.to_thread(
            flood, KINDS[kind], mesh.at["a"], lambda: context, FLOOD_S, "127.0.0.1"
        )
        tally, _ = await asyncio.gather(flooding, mesh.rounds(3))
        assert tally["units"]
        accounts = limiter._accounts.values()
        await until(lambda: not any(one.reading for one in accounts))
        await mesh.rounds(2)
