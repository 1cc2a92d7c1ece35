"""What `fednode check` says of the ways into a mesh: open, closed, and what to ask of IT."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fednode.app.plan import NodePlan, make
from fednode.app.ways import Way, findings, to_it
from fednode.identity import keys
from tests.unit.identity.people import made_key
from tests.unit.transports.relays import raised

CLOSED = "127.0.0.1:1"


def plan_of(folder: Path, *relays: tuple[str, str], key: int = 1, **more: str) -> NodePlan:
    """Return the plan of a node behind relays, with the key of a number."""
    state = folder / "state"
    (state / "identity").mkdir(parents=True)
    keys.keep(state / "identity" / keys.KEY_FILE, made_key(key))
    own = keys.node_id(made_key(key))
    tree = {
        "mesh": "m",
        "relays": [{"address": address, "id": id} for address, id in relays],
        "peers": [
            {"name": "a", "address": "relay", "id": own},
            {"name": "b", "address": "127.0.0.1:2", "id": keys.node_id(made_key(3))},
        ],
        **more,
    }
    (folder / "peers.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    return make(folder / "peers.yaml", None, "a", ("tuning.kind=closed-form",), state)


async def test_an_open_and_a_closed_relay_and_what_to_send_to_it(tmp_path: Path) -> None:
    async with raised() as relay:
        at = relay.at.address, relay.at.id
        plan = plan_of(tmp_path, at, (CLOSED, keys.node_id(made_key(2))))
        (good, bad, direct, letter) = await findings(plan, live=False)
    assert good == ("note", f"The relay {relay.at.address}: open.")
    assert bad == ("warning", f"The relay {CLOSED}: closed (nobody answers at {CLOSED}).")
    assert "needs no connection from outside" in direct[1]
    assert letter[0] == "note"
    assert "out to 127.0.0.1, TCP port 1; nothing has to come in" in letter[1]


async def test_a_node_behind_relays_that_reaches_none_has_a_fault(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, (CLOSED, keys.node_id(made_key(2))))
    found = await findings(plan, live=True)
    assert [level for level, _ in found] == ["fault", "note"]


async def test_a_relay_that_does_not_know_the_key_says_so(tmp_path: Path) -> None:
    async with raised() as relay:
        plan = plan_of(tmp_path, (relay.at.address, relay.at.id), key=45)
        ((level, text), *_) = await findings(plan, live=True)
    assert level == "fault"
    assert "it does not admit this node's key" in text


async def test_a_name_that_does_not_resolve_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    plan = plan_of(tmp_path, ("no-such-host.invalid:443", keys.node_id(made_key(2))))
    ((_, text), *_) = await findings(plan, live=True)
    assert "closed (the name no-such-host.invalid does not resolve here)" in text


async def test_the_proxy_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, ("r.example.org:443", keys.node_id(made_key(2))))
    settings = replace(plan.settings, proxy="http://me:secret@127.0.0.1:1")
    ((_, text), *_) = await findings(replace(plan, settings=settings), live=True)
    assert text.startswith("The relay r.example.org:443 through the proxy 127.0.0.1:1: closed (no")
    assert "secret" not in text


async def test_a_node_without_a_key_only_opens_a_connection(tmp_path: Path) -> None:
    async with raised() as relay:
        mesh_key = keys.written(made_key(7).public_key())
        more: dict[str, Any] = {"mesh_key": mesh_key, "introducer": CLOSED}
        plan = plan_of(tmp_path, (relay.at.address, relay.at.id), **more)
        plan = replace(plan, state=tmp_path / "elsewhere")
        found = await findings(plan, live=True)
    assert found[0] == ("note", f"The relay {relay.at.address}: open.")
    assert found[1] == ("warning", f"The introducer {CLOSED}: closed (nobody answers at {CLOSED}).")


def test_nothing_is_asked_of_it_while_all_is_open() -> None:
    assert to_it([Way("relay", "r:443")]) == ""
