"""A node's interfaces: whether the page is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.mesh import connect
from fednode.app.plan import NodePlan, make
from fednode.app.servers import Servers
from fednode.storage.store import Store
from tests.unit.commands.run import PEERS


def planned(folder: Path, *flags: str) -> NodePlan:
    (folder / "peers.yaml").write_text(PEERS)
    return make(folder / "peers.yaml", None, "a", flags, folder / "state")


@pytest.mark.parametrize("shown", [True, False])
async def test_the_page_is_served_only_if_it_is_set(tmp_path: Path, shown: bool) -> None:
    listen = "127.0.0.1:0" if shown else "null"
    plan = planned(tmp_path, f"page.listen={listen}")
    store, mesh = Store(plan.state), connect(plan)
    made = Servers(plan, mesh, store)
    try:
        await made.open()
        assert made.service.page.startswith("http://127.0.0.1:") == shown
        assert made.service.now().life == "loading"  # it answers before there is a node
    finally:
        await made.close()
        await made.close()
        await mesh.transport.close()
        store.close()
