"""peers.yaml: what is read, what is wrong with it, and which node this is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.settings.peers import load_peers
from tests.unit.settings.test_read import write

PEERS = """\
mesh: clinic
insecure: true
peers:
  - {name: a, address: "127.0.0.1:7101"}
  - {name: b, address: "127.0.0.1:7102"}
"""


def peers_fault(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_peers(write(tmp_path, text, "peers.yaml"))
    return str(caught.value).replace(f"{tmp_path}/", "")


KEY = "-".join(["AAAAAAAA"] * 6 + ["AAAA"])
KEYED = f'mesh: m\nmesh_key: {KEY}\npeers: [{{name: a, address: "10.0.0.7:1"}}]\n'


ENTRY = '{name: relay-1, address: "relay.example.org:443"}'
FIVE = ", ".join(ENTRY.replace("443", f"44{number}") for number in range(5))
RELAYED = f"""mesh: m
relays: [{ENTRY}]
peers:
  - {{name: a, address: relay}}
  - {{name: b, address: relay}}
mesh_key: {KEY}
"""


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("name: b", "name: a"), "line 5: the name 'a' stands in two entries, also in line 4;"),
        (("7102", "7101"), "line 5: the address '127.0.0.1:7101' stands in two entries, also"),
        (("name: b", "name: B!"), "line 5: the name 'B!' is not allowed; use small letters"),
        (("127.0.0.1:7102", "10.0.0.7:7102"), "line 5: the address 10.0.0.7:7102 of 'b' leaves"),
        (("127.0.0.1:7102", "example.org:1"), "line 5: the address example.org:1 of 'b' leaves"),
        (("127.0.0.1:7102", "127.0.0.1"), "line 5: the address '127.0.0.1' has no port"),
        (("127.0.0.1:7102", "127.0.0.1:0"), "line 5: the address 127.0.0.1:0 of 'b' has port 0"),
        (("clinic", "My Clinic"), "line 1: mesh is 'My Clinic'; use small letters"),
        (("insecure: true", "insecure: false"), "line 1: the mesh has no mesh_key"),
        (("insecure: true\n", ""), "line 1: the mesh has no mesh_key"),
        (("insecure: true", "mesh_key: AB"), "line 2: mesh_key is wrong: 'AB' is no id or key"),
        (('7102"', '7102", id: AB'), "unknown key 'id' in entry 2 of 'peers'"),
        (("mesh: clinic", f"mesh: clinic\nmesh_key: {KEY}"), "so mesh_key would mean nothing"),
        (("mesh: clinic\n", ""), "'mesh' is missing"),
        ((PEERS[28:], "peers: []\n"), "peers.yaml, line 3: peers is empty; list at least this"),
        (('address: "127.0.0.1:7102"', "adress: x"), "unknown key 'adress' in entry 2 of 'peers'"),
        ((', address: "127.0.0.1:7102"', ""), "'address' in entry 2 of 'peers' is missing"),
        ((f"relays: [{ENTRY}]\n", ""), "'a' has the address 'relay', and no relay is listed"),
        (("relay-1", "R!"), "the name 'R!' is not allowed"),
        ((ENTRY, f"{ENTRY}, {ENTRY}"), "stands in two entries"),
        ((ENTRY, FIVE), "there are 5 relays; list at most 4"),
        (('"relay.example.org:443"', "relay"), "a relay's address is host:port"),
        (("mesh: m\n", "mesh: m\ninsecure: true\n"), "relays carry TLS, and with `insecure: true`"),
    ],
)
def test_what_is_wrong_with_peers_is_named(
    tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    text = RELAYED if change[0] in RELAYED else PEERS
    assert change[0] in text
    assert sentence in peers_fault(tmp_path, text.replace(*change))
