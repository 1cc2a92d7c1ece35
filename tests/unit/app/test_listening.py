"""`fednode check`: addresses that are taken, and names that nobody can resolve."""

from __future__ import annotations

import socket
from pathlib import Path

from fednode.app.listening import findings
from fednode.app.plan import NodePlan, make
from fednode.transports.ports import free_ports


def plan_at(tmp_path: Path, address: str, *flags: str) -> NodePlan:
    file = tmp_path / "peers.yaml"
    file.write_text(f"mesh: m\ninsecure: true\npeers:\n  - {{name: a, address: '{address}'}}\n")
    return make(file, None, "a", ("tuning.kind=closed-form", *flags), tmp_path / "state")


def test_an_address_that_is_taken_is_a_fault(tmp_path: Path) -> None:
    own, page = free_ports(2)
    plan = plan_at(tmp_path, f"127.0.0.1:{own}", f"page.listen=127.0.0.1:{page}")
    assert list(findings(plan, running=False)) == []
    with socket.create_server(("127.0.0.1", own)):
        (found,) = findings(plan, running=False)
    assert found[0] == "fault"
    assert str(own) in found[1]
