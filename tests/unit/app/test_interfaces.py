"""A node's interfaces: which ports they listen on, and what is said where an extra is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fednode.app.interfaces import Interfaces, otel_of
from fednode.app.network import join
from fednode.app.plan import NodePlan, make
from fednode.errors import ConfigError
from fednode.observe.events import Events
from fednode.storage.store import Store
from tests.unit.commands.run import PEERS

URL = "http://127.0.0.1:4318"


def planned(folder: Path, *flags: str) -> NodePlan:
    (folder / "peers.yaml").write_text(PEERS)
    return make(folder / "peers.yaml", None, "a", flags, folder / "state")


def test_without_a_collector_there_are_no_traces(tmp_path: Path) -> None:
    assert otel_of(planned(tmp_path), Events()) is None


def test_a_missing_extra_is_named_with_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fednode.observe.otel", None)
    with pytest.raises(ConfigError, match=rf"endpoint is {URL}, .*`pip install fednode\[otel\]"):
        otel_of(planned(tmp_path, f"otel.endpoint={URL}"), Events())


@pytest.mark.parametrize("shown", [True, False])
async def test_only_the_ports_that_are_set_are_listened_on(tmp_path: Path, shown: bool) -> None:
    listen = "127.0.0.1:0" if shown else "null"
    plan = planned(tmp_path, f"page.listen={listen}", f"admin.listen={listen}")
    store, mesh = Store(plan.state), join(plan)
    made = Interfaces(plan, mesh, store)
    try:
        await made.open()
        assert made.service.page.startswith("http://127.0.0.1:") == shown
        assert made.service.now().life == "loading"  # it answers before there is a node
    finally:
        await made.close()
        await made.close()
        await mesh.transport.close()
        store.close()
