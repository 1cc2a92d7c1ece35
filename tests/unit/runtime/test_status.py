"""The status service on a real gRPC server: while loading, while running, history, commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from node.core.types import Message
from node.errors import Refused
from node.learn.closed_form import ClosedFormLearner
from node.runtime.client import Client
from node.runtime.status import About, NodeService, _counts
from node.runtime.store import Store
from node.transports.memory import Hub, MemoryTransport
from node.wire import codec
from tests.unit.runtime.daemons import address, running

ABOUT = About("a", "simulated", "zerodfl", "ID", "127.0.0.1:7101", "fednode-mini")


@asynccontextmanager
async def serving(service: NodeService) -> AsyncIterator[tuple[Client, str]]:
    server = grpc.aio.server()
    service.register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Client(timeout_s=20) as client:
        yield client, f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_node_that_loads_says_so_and_takes_no_commands(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with serving(NodeService(store, ABOUT)) as (client, where):
        reply = await client.status(where)
        assert (reply.name, reply.mesh, reply.life, reply.round) == ("a", "simulated", "loading", 0)
        assert reply.pid > 0
        with pytest.raises(Refused, match="still loading"):
            await client.control(where, "pause")
        assert await client.history(where) == []
    store.close()


async def test_a_running_node_tells_all_of_itself(tmp_path: Path) -> None:
    hub = Hub()
    async with (
        running(hub, tmp_path, "b", ("a",), most=0, interval_s=0.01),
        running(hub, tmp_path, "a", ("b",), most=4) as a,
    ):
        await a.until(lambda: a.driver.kernel.view().life == "finished")
        learner = ClosedFormLearner("a")
        service = NodeService(a.store, ABOUT)
        service.attach(a.driver, learner)
        stranger = Message("elsewhere", "ff", "zerodfl", "b", 1, "hello")
        frame = codec.encode(stranger, "float32")
        await MemoryTransport(hub).send(address("a"), frame, 5.0)
        async with serving(service) as (client, where):
            reply = await client.status(where)
            assert (reply.life, reply.round, reply.rounds_max, reply.phase) == (
                *("finished", 4, 4, "idle"),
            )
            assert list(reply.classes) == list(learner.classes)
            assert (reply.samples, reply.backbone) == (learner.samples, learner.backbone)
            assert reply.metrics["loss"] > 0
            assert dict(reply.refused)["mesh"] == 1
            assert "this is mesh 'simulated', not 'elsewhere'" in reply.events[0].text
            (peer,) = reply.peers
            assert (peer.name, peer.address) == ("b", address("b"))
            assert peer.selected == a.driver.kernel.policy.state().data["chosen"]["b"]  # type: ignore[index, call-overload]
            assert peer.traffic.messages_out == reply.traffic.messages_out > 0
            assert reply.traffic.payload_out < reply.traffic.serialized_out < reply.traffic.wire_out
            history = await client.history(where)
            assert [one.round for one in history] == [1, 2, 3, 4]
            assert [one.round for one in await client.history(where, since=3)] == [3, 4]
            assert history[-1].digest == a.driver.kernel.policy.state().tensors.digest


async def test_commands_reach_the_kernel_and_unknown_ones_are_named(tmp_path: Path) -> None:
    async with running(Hub(), tmp_path, "a", most=0, interval_s=0.01) as a:
        service = NodeService(a.store, ABOUT)
        service.attach(a.driver, ClosedFormLearner("a"))
        async with serving(service) as (client, where):
            assert await client.control(where, "pause") == "a was asked to pause"
            await a.until(lambda: a.driver.kernel.view().life == "paused")
            await client.control(where, "resume")
            await a.until(lambda: a.driver.kernel.view().life == "running")
            with pytest.raises(Refused, match="there is no command 'dance'; there are pause"):
                await client.control(where, "dance")


def test_pull_counts_rows_taken_as_choices() -> None:
    assert _counts({"chosen": {"b": 2}, "received": {"b": 0, "c": 3}}) == {"b": 2, "c": 3}
    assert _counts({}) == {}
