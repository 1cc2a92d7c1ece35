"""What `fednode check` says of ports, relays and the peers that answer."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.app.check_peers import _clock, peer_findings, port_findings, proxy_of
from fednode.app.plan import NodePlan, make
from fednode.learn.quadratic import QuadraticLearner
from fednode.transports.ports import free_ports
from fednode.wire.gen import status_pb2
from tests.unit.commands import canned


def plan_at(folder: Path, address: str, *flags: str, peer: str = "127.0.0.1:2") -> NodePlan:
    file = folder / "peers.yaml"
    entries = f"  - {{name: a, address: '{address}'}}\n  - {{name: b, address: '{peer}'}}\n"
    file.write_text(f"mesh: m\ninsecure: true\npeers:\n{entries}", encoding="utf-8")
    return make(file, None, "a", ("tuning.kind=closed-form", *flags), folder / "state")


def test_an_address_that_is_taken_is_a_fault(tmp_path: Path) -> None:
    own, page = free_ports(2)
    plan = plan_at(tmp_path, f"127.0.0.1:{own}", f"page.listen=127.0.0.1:{page}")
    assert list(port_findings(plan, running=False)) == []
    with socket.create_server(("127.0.0.1", own)):
        ((level, text),) = port_findings(plan, running=False)
        assert list(port_findings(plan, running=True)) == []
    assert level == "fault"
    assert str(own) in text


@pytest.mark.parametrize(
    ("ahead", "text"),
    [
        (0.0, ""),
        (4.0, ""),
        (90.0, "its clock is 90 s ahead of this machine's, and certificates end by the clock"),
        (-90.0, "its clock is 90 s behind this machine's, and certificates end by the clock"),
    ],
)
def test_clocks_are_compared(ahead: float, text: str) -> None:
    assert _clock(ahead, 0.1) == text


async def test_a_peer_that_is_not_as_this_node_is(tmp_path: Path) -> None:
    me = status_pb2.Peer(name="a", unreached="nobody answers")
    later = time.time() + 60.0
    with canned.node(name="b", mesh="m", policy="local", clock=later, peers=[me]) as address:
        plan = plan_at(tmp_path, "127.0.0.1:1", peer=address)
        found = await peer_findings(plan, QuadraticLearner("a"), "f", running=False)
    assert found[0] == ("fault", "b cannot reach a: nobody answers.")
    differs = f"b at {address}: policy is zerodfl here and local there; model is closed-form here"
    assert found[1] == ("fault", f"{differs} and 0123456789ab there.")
    assert found[2][0] == "warning"
    assert "s ahead of this machine's, and certificates end by the clock." in found[2][1]


def test_the_proxy_is_named_without_its_password(tmp_path: Path) -> None:
    plan = plan_at(tmp_path, "127.0.0.1:1")
    settings = replace(plan.settings, proxy="http://me:secret@127.0.0.1:8080")
    assert proxy_of(replace(plan, settings=settings)) == "127.0.0.1:8080"
