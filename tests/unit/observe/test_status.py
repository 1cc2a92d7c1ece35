"""The status service on a real gRPC server: while loading, while running, history, commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from fednode.core.events import Record
from fednode.core.members.table import Member
from fednode.core.rate_limit import BURST_S
from fednode.core.types import Message
from fednode.errors import Refused, Unreachable
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe import status as module
from fednode.observe.client import Client
from fednode.observe.status import WATCHERS_EACH, WATCHERS_MAX, NodeService
from fednode.observe.working import Working
from fednode.storage.store import Store
from fednode.wire import codec
from tests.contract.memory_transport import Hub, MemoryTransport
from tests.unit.observe.nodes import FakeNode
from tests.unit.runtime.daemons import ABOUT, address, running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


@asynccontextmanager
async def serving(
    service: NodeService, where: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[Client, str]]:
    server = grpc.aio.server()
    service.register(server)
    port = server.add_insecure_port(where)
    await server.start()
    async with Client(timeout_s=20) as client:
        yield client, f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_new_node_at_the_address_of_one_that_ended_answers_at_once(store: Store) -> None:
    service = NodeService(store, ABOUT)
    async with serving(service) as (_, where):
        pass
    async with Client() as earlier:
        with pytest.raises(Unreachable):
            await earlier.status(where)
        async with serving(service, where) as (client, _):
            assert (await client.status(where)).name == "a"


async def test_a_node_that_loads_says_so_and_takes_no_commands(store: Store) -> None:
    working = Working(clock=lambda: 0.0)
    working("examining images", 1_200, 2_870)
    service = NodeService(store, replace(ABOUT, caution="it is odd"), working=working.__str__)
    async with serving(service) as (client, where):
        reply = await client.status(where)
        assert list(reply.notes) == ["it is odd"], "from the first moment on"
        assert (reply.name, reply.mesh, reply.life, reply.round) == ("a", "simulated", "loading", 0)
        assert reply.working == "examining images 1,200 of 2,870 (0 s)"
        assert reply.pid > 0
        with pytest.raises(Refused, match="still loading"):
            await client.control(where, "pause")
        assert await client.history(where) == []


async def test_watch_tells_what_happened_and_what_happens(tmp_path: Path) -> None:
    async with running(Hub(), tmp_path, "a", most=0, interval_s=0.01) as a:
        service = NodeService(a.store, ABOUT, events=a.driver.telemetry.events)
        service.attach(a.driver, QuadraticLearner("a"))
        await a.until(lambda: len(service.events.kept) >= 2)
        async with serving(service) as (client, where):
            past = [one async for one in client.watch(where, follow=False)]
            assert [one.fields["round"] for one in past[:2]] == ["1", "2"]
            assert {one.kind for one in past} == {"round.adopted"}
            kinds = {one.kind async for one in client.watch(where, 0, "debug", follow=False)}
            assert {"round.began", "tune.done", "round.adopted"} <= kinds
            seen = []
            async with aclosing(client.watch(where, since=past[-1].number)) as live:
                async for one in live:
                    seen.append(int(one.fields["round"]))
                    if len(seen) == 3:
                        break
            first = int(past[-1].fields["round"]) + 1
            assert seen == [first, first + 1, first + 2]
            with pytest.raises(Refused, match="there is no level 'loud'"):
                await anext(client.watch(where, level="loud"))


async def test_a_key_that_is_no_members_any_more_reads_nothing_more(store: Store) -> None:
    gone = dict[str, str]()
    service = NodeService(store, ABOUT, lambda _: "KEY", admits=lambda id: gone.get(id, ""))
    service.events.record(Record("life.kind", "before"))
    async with serving(service) as (client, where), aclosing(client.watch(where)) as live:
        assert (await anext(live)).text == "before"
        assert (await client.status(where)).name == "a"
        gone["KEY"] = "the certificate of the key KEY has ended"
        service.events.record(Record("life.kind", "after"))
        with pytest.raises(Refused, match="the certificate of the key KEY has ended"):
            await anext(live)
        for call in (client.status, client.history):
            with pytest.raises(Refused, match="the certificate of the key KEY has ended"):
                await call(where)


async def watch(client: Client, where: str, most: int, held: AsyncExitStack) -> Any:
    """Watch as often as may be, and once more in vain; return the last stream."""
    for _ in range(most):
        following = await held.enter_async_context(aclosing(client.watch(where)))
        assert (await anext(following)).text == "text"
    with pytest.raises(Refused, match=f"{most} watch this node already"):
        await anext(client.watch(where))
    return following


async def test_watchers_are_bounded_and_those_that_go_make_room(store: Store) -> None:
    service = NodeService(store, ABOUT)
    service.events.record(Record("life.kind", "text"))
    async with serving(service) as (client, where), AsyncExitStack() as held:
        following = await watch(client, where, WATCHERS_MAX, held)
        await following.aclose()
        async with asyncio.timeout(180):
            while service._watchers[""] == WATCHERS_MAX:  # noqa: ASYNC110
                await asyncio.sleep(0)
        async with aclosing(client.watch(where)) as again:
            assert (await anext(again)).text == "text"


async def test_members_watch_and_ask_a_little_and_the_operator_always_gets_through(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASKS_S", 1.0)
    calls: Iterator[str | None] = iter(["member"] * 1000)
    service = NodeService(store, ABOUT, caller=lambda _: next(calls))
    service.events.record(Record("life.kind", "text"))
    async with serving(service) as (client, where), AsyncExitStack() as held:
        await watch(client, where, WATCHERS_EACH, held)
        for _ in range(int(BURST_S) - WATCHERS_EACH - 1):
            assert (await client.status(where)).name == "a"
        with pytest.raises(Refused, match="more than 1 messages a second"):
            await client.history(where)
        for operator in ("", "ID"):
            calls = iter([operator] * 4)  # a watch asks again for its record
            assert (await client.status(where)).name == "a"
            assert await client.history(where) == []
            async with aclosing(client.watch(where)) as again:
                assert (await anext(again)).text == "text"
        calls = iter([None] * 3)
        for ask in (client.status(where), client.history(where), anext(client.watch(where))):
            with pytest.raises(Refused, match="has ended, or its key was revoked"):
                await ask


async def test_a_running_node_tells_all_of_itself(tmp_path: Path) -> None:
    hub = Hub()
    async with (
        running(hub, tmp_path, "b", ("a",), most=0, interval_s=0.01),
        running(hub, tmp_path, "a", ("b",), most=4) as a,
    ):
        await a.until(lambda: a.driver.kernel.view().life == "finished")
        learner = QuadraticLearner("a")
        service = NodeService(a.store, ABOUT)
        service.attach(a.driver, learner)
        stranger = Message(
            mesh="elsewhere", fingerprint="ff", policy="zerodfl", sender="b", round=1, phase="hello"
        )
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
            assert [one.name for one in await client.peers(where)] == ["b"]
            assert peer.traffic.messages_out == reply.traffic.messages_out > 0
            assert reply.traffic.payload_out < reply.traffic.serialized_out < reply.traffic.wire_out
            history = await client.history(where)
            assert [one.round for one in history] == [1, 2, 3, 4]
            assert [one.round for one in await client.history(where, since=3)] == [3, 4]
            assert history[-1].digest == a.driver.kernel.policy.state().tensors.digest


async def test_the_classes_of_peers_stand_beside_those_of_the_node(tmp_path: Path) -> None:
    """Before the first round, and for a peer that is refused, too."""

    async def dial(address: str, name: str, reply_bytes: int) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address)

    store, there = Store(tmp_path / "a"), Store(tmp_path / "b")
    peer = NodeService(there, ABOUT)
    peer.attach(FakeNode(), QuadraticLearner("b"))
    async with serving(peer) as (_, address), asyncio.timeout(180):
        service = NodeService(store, ABOUT, dial=dial)
        members = (Member(name="b", state="refused"), Member(name="c", state="dead"))
        node = FakeNode(members, addresses={"b": address, "c": address})
        service.attach(node, QuadraticLearner("a"))
        assert not service.now().notes
        await service.compare_classes()
        assert list(service.now().notes)[:2] == [
            "Only this node has its classes: target of a.",
            "Classes of peers that this node does not have: target of b (b).",
        ]
        service._caller = lambda _: "ANOTHER"  # a member, which may not see names of either side
        async with serving(service) as (client, own):
            assert not any("target of" in note for note in (await client.status(own)).notes)
    store.close()
    there.close()


async def test_the_operator_revokes_and_a_wrong_proof_is_named(store: Store) -> None:
    node = FakeNode(counts={"mesh": 2})
    service = NodeService(store, ABOUT)
    service.attach(node, QuadraticLearner("a"))
    async with serving(service) as (client, address):
        told = await client.control(address, "revoke", b"signed")
        assert told == "a tells everyone that KEY is revoked"
        assert node.revoked == [b"signed"]
        with pytest.raises(Refused, match="the mesh key did not sign"):
            await client.control(address, "revoke", b"wrong")
        assert await client.control(address, "pause") == "a was asked to pause"
        assert node.commands == ["pause"]
        with pytest.raises(Refused, match="there is no command 'dance'; there are pause"):
            await client.control(address, "dance")
        assert dict((await client.status(address)).refused) == {"mesh": 2}


@pytest.mark.parametrize(
    ("caller", "tells", "shown", "counts"),
    [
        ("", True, ["mesh 51.5"], (40, -3, 5)),
        ("", False, ["mesh 51.5"], (40, -3, 5)),
        ("ANOTHER", True, [], (40, -3, 5)),
        ("ANOTHER", False, [], (0, 0, 0)),
    ],
)
async def test_members_see_three_counts_of_what_the_node_gained(
    store: Store, caller: str, tells: bool, shown: list[str], counts: tuple[int, ...]
) -> None:
    """The control has no noise of privacy.clip; members then get nothing that comes from it."""
    service = NodeService(store, replace(ABOUT, tells_gain=tells), lambda _: caller)
    service.comparison = lambda: (["mesh 51.5"], [40, -3, 5])
    service.attach(FakeNode(), QuadraticLearner("a"))
    async with serving(service) as (client, where):
        reply = await client.status(where)
    assert list(reply.compared) == shown
    assert (reply.gain.images, reply.gain.difference, reply.gain.squares) == counts
