"""Which nodes a command asks: an address, a name in peers.yaml, or all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app import reach as reach_module
from fednode.app.asking import Targets
from fednode.app.reach import reach
from fednode.errors import ConfigError
from fednode.observe.client import Client
from tests.unit.commands.run import PEERS
from tests.unit.identity.people import SmallMesh

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


def test_an_address_needs_no_file(here: Path) -> None:
    make, targets = reach("127.0.0.1:9", None, None)
    assert (make()._transport, targets) == (None, [("", "127.0.0.1:9")])


def test_an_address_is_asked_with_a_key_if_the_file_here_is_of_a_mesh_with_tls(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "peers.yaml").write_text(PEERS)
    make, targets = reach("127.0.0.1:9", None, None)
    assert (make()._transport, targets) == (None, [("", "127.0.0.1:9")])
    monkeypatch.setenv("HOME", str(here))
    (here / "peers.yaml").write_text(KEYED)
    make, targets = reach("127.0.0.1:9", None, None)
    assert targets == [("", "127.0.0.1:9")]
    with pytest.raises(ConfigError, match="speaks TLS, and no node of it has a key below"):
        make()


def test_without_an_address_all_of_peers_yaml_is_asked(here: Path) -> None:
    (here / "peers.yaml").write_text(PEERS)
    assert reach(None, None, None)[1] == [A, B]
    (here / "peers.yaml").rename(here / "other.yaml")
    assert reach(None, here / "other.yaml", None)[1] == [A, B]


def test_a_name_is_looked_up_and_an_address_beside_a_file_is_kept(here: Path) -> None:
    (here / "peers.yaml").write_text(PEERS)
    assert reach("b", None, None)[1] == [B]
    assert reach("10.0.0.1:5", here / "peers.yaml", None)[1] == [("", "10.0.0.1:5")]
    with pytest.raises(ConfigError, match=r"No peer is called 'z' in peers.yaml, and no .* a, b:"):
        reach("z", None, None)


def test_nothing_to_ask_says_what_to_give(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"no peers.yaml here: give the address"):
        reach(None, None, None)


def test_nodes_of_this_machine_are_known_and_name_the_others(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """peers.yaml lists none of them."""
    monkeypatch.setenv("HOME", str(here))
    (here / "peers.yaml").write_text(KEYED)
    for name, advertise in (("c", "null"), ("b", "relay"), ("a", A[1])):
        state = here / ".local/state/fednode/m" / name
        MESH.write(state, name)
        (state / "settings.yaml").write_text(f"name: {name}\nadvertise: {advertise}\n")
    assert reach("b", None, None)[1] == [("b", "relay:b")]
    assert reach(None, None, None)[1] == [("z", "10.0.0.9:1")]
    assert reach("a", None, None)[1] == [A]
    asked = list[Targets]()

    async def names(client: Client, targets: Targets) -> Targets:
        asked.append(targets)
        return [*targets, ("d", "10.0.0.4:1")]

    monkeypatch.setattr(reach_module, "everyone", names)
    assert reach("d", None, Path("a"))[1] == [("d", "10.0.0.4:1")]
    assert asked == [[A, ("z", "10.0.0.9:1")]]
