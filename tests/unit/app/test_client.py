"""Which nodes a command asks, and what several nodes answer that are asked at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from fednode.app import client as asking
from fednode.app.client import Targets, ask_all, everyone, reach
from fednode.errors import ConfigError, Refused, Unreachable
from fednode.observe.client import Client
from fednode.wire.gen import status_pb2
from tests.unit.commands.run import PEERS
from tests.unit.identity.people import SmallMesh

TARGETS = [("a", "a:1"), ("b", "b:1"), ("c", "c:1")]
MESH = SmallMesh("m")
KEYED = f"""mesh: m
mesh_key: {MESH.mesh_key_text}
peers: [{{name: z, address: "10.0.0.9:1"}}]
"""
A, B = ("a", "127.0.0.1:7191"), ("b", "127.0.0.1:7192")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_address_needs_no_file_and_is_asked_with_a_key_if_the_file_here_is_of_a_mesh_with_tls(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = [("", "127.0.0.1:9")]
    for text in (None, PEERS):
        if text is not None:
            (here / "peers.yaml").write_text(text)
        make, targets = reach("127.0.0.1:9", None, None)
        assert (make()._transport, targets) == (None, target)
    monkeypatch.setenv("HOME", str(here))
    (here / "peers.yaml").write_text(KEYED)
    make, targets = reach("127.0.0.1:9", None, None)
    assert targets == target
    with pytest.raises(ConfigError, match="speaks TLS, and no node of it has a key below"):
        make()


def test_names_are_looked_up_and_without_one_all_of_peers_yaml_is_asked(here: Path) -> None:
    (here / "peers.yaml").write_text(PEERS)
    assert reach(None, None, None)[1] == [A, B]
    assert reach("b", None, None)[1] == [B]
    assert reach("10.0.0.1:5", here / "peers.yaml", None)[1] == [("", "10.0.0.1:5")]
    with pytest.raises(ConfigError, match=r"No peer is called 'z' in peers.yaml, and no .* a, b:"):
        reach("z", None, None)
    (here / "peers.yaml").rename(here / "other.yaml")
    assert reach(None, here / "other.yaml", None)[1] == [A, B]


def test_a_name_that_peers_yaml_does_not_list_is_known_to_a_node_that_answers(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "peers.yaml").write_text(PEERS)
    asked = list[Targets]()

    async def names(client: Client, targets: Targets) -> Targets:
        asked.append(targets)
        return [*targets, ("d", "10.0.0.4:1")]

    monkeypatch.setattr(asking, "everyone", names)
    assert reach("d", None, None)[1] == [("d", "10.0.0.4:1")]
    assert asked == [[A, B]]


class Grown:
    """Nodes that answer once the first ones were all asked; some joined later."""

    def __init__(self) -> None:
        self.asked, self.all = list[str](), asyncio.Event()

    async def status(self, where: str) -> Any:
        self.asked.append(where)
        if len(self.asked) == len(TARGETS):
            self.all.set()
        async with asyncio.timeout(180):
            await self.all.wait()
        if where in {"b:1", "d:1"}:
            raise Unreachable("nobody")
        if where == "c:1":
            raise Refused("no")
        named = [("a", "a:1", "alive"), ("c", "c:1", "alive"), ("d", "d:1", "dead")]
        named += [("e", "e:1", "revoked"), ("f", "", "alive"), ("g", "relay", "alive")]
        peers = [status_pb2.Peer(name=name, address=at, state=state) for name, at, state in named]
        return status_pb2.StatusReply(name=where[0], peers=peers)


async def test_all_are_asked_at_once_and_members_that_joined_later_after_them() -> None:
    grown, more = Grown(), [("d", "d:1"), ("g", "relay:g")]
    client = cast("Client", grown)
    found = await ask_all(client, TARGETS)
    assert grown.asked == ["a:1", "b:1", "c:1", "d:1", "relay:g"]
    assert [target for target, _ in found] == [*TARGETS, *more]
    assert [reply and reply.name for _, reply in found] == ["a", None, None, None, "r"]
    assert await everyone(client, TARGETS) == [*TARGETS, *more]
