"""`fednode check --live`: peers call a node back, whether it runs or only wants to know."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from fednode.app.plan import NodePlan, make
from fednode.app.probing import Probed, _probed, probe, runs, slow
from fednode.learn.closed_form import ClosedFormLearner
from fednode.observe.status import NodeService
from fednode.storage.store import Store
from fednode.transports.grpc import dial
from fednode.transports.ports import free_ports
from fednode.wire.gen import status_pb2
from tests.contract.memory_transport import Hub
from tests.unit.runtime.daemons import ABOUT, running


@pytest.fixture
def plan(tmp_path: Path) -> NodePlan:
    lines = [
        f"  - {{name: {name}, address: '127.0.0.1:{port}'}}\n"
        for name, port in zip("bac", free_ports(3), strict=True)
    ]
    file = tmp_path / "peers.yaml"
    file.write_text("mesh: m\ninsecure: true\npeers:\n" + "".join(lines), encoding="utf-8")
    return make(file, None, "b", ("tuning.kind=closed-form",), tmp_path / "state")


async def _dial(to: str, who: str, reply_bytes_max: int) -> Any:
    return dial(to, reply_bytes_max)


def _address(plan: NodePlan, name: str) -> str:
    return plan.peers.entry(name).address


@asynccontextmanager
async def _peer(plan: NodePlan, folder: Path, calls: str) -> AsyncIterator[None]:
    """Run node a, which calls b at an address."""
    async with running(Hub(), folder, "a", ("b",), most=1) as made:
        made.driver.addresses["b"] = calls
        service = NodeService(made.store, ABOUT, dial=_dial)
        service.attach(made.driver, ClosedFormLearner("a"))
        server = grpc.aio.server()
        service.register(server)
        server.add_insecure_port(_address(plan, "a"))
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)


async def test_a_peer_reaches_a_node_that_does_not_run_yet(plan: NodePlan, tmp_path: Path) -> None:
    async with _peer(plan, tmp_path, plan.address):
        assert not await runs(plan)
        assert await probe(plan, running=False) == [Probed("a", plan.address)]
        # Nothing listens any more, and nothing answers in the place of a node that "runs".
        assert await probe(plan, running=True) == [Probed("a", plan.address, "nobody answers")]


async def test_a_peer_that_has_another_address_says_which(plan: NodePlan, tmp_path: Path) -> None:
    elsewhere = f"127.0.0.1:{free_ports(1)[0]}"
    async with _peer(plan, tmp_path, elsewhere):
        (found,) = await probe(plan, running=False)
    assert found.sentence("b") == f"a cannot reach b at {elsewhere}: nobody answers."


async def test_a_peer_that_loads_or_does_not_know_the_name_says_so(
    plan: NodePlan, tmp_path: Path
) -> None:
    store = Store(tmp_path / "a")
    server = grpc.aio.server()
    NodeService(store, ABOUT).register(server)
    server.add_insecure_port(_address(plan, "a"))
    await server.start()
    (found,) = await probe(plan, running=True)
    assert found.fault == "a is still loading its model and images; ask again in a moment"
    await server.stop(None)
    store.close()
    assert await probe(plan, running=True) == []
    async with _peer(plan, tmp_path / "again", plan.address):
        (found,) = await probe(replace(plan, name="c"), running=True)
        grown = replace(plan, name="c", peers=replace(plan.peers, sponsors=("a",)))
        (young,) = await probe(grown, running=True)
    assert found.fault == "there is no member 'c' in its mesh"
    assert not found.young
    assert young.sentence("c") == "a has not heard of c yet: other members tell it."


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (0.0, "b reaches a at here; the clocks agree."),
        (4.0, "b reaches a at here; the clocks agree."),
        (90.0, "b reaches a at here; its clock is 90 s ahead of this machine's, and leases and "
         "certificates end by the clock."),
        (-90.0, "b reaches a at here; its clock is 90 s behind this machine's, and leases and "
         "certificates end by the clock."),
    ],
)  # fmt: skip
async def test_clocks_are_compared(ahead: float, said: str) -> None:
    class Fake:
        async def probe(self, address: str, name: str) -> status_pb2.ProbeReply:
            return status_pb2.ProbeReply(address="here", clock=time.time() + ahead)

    found = await _probed(Fake(), "b", "there", "a")  # type: ignore[arg-type]
    assert found is not None
    assert found.sentence("a") == said


def test_a_slow_first_call_through_a_relay_asks_for_the_preset_wan() -> None:
    assert slow(0.2, 0.4) == []
    (text,) = slow(0.21, 0.4)
    assert "took 0.21 s, and a ping may take 0.4 s: set membership.preset to wan" in text
