"""`fednode relay` on the command line."""

from __future__ import annotations

from pathlib import Path

from fednode.identity.keys import node_id
from fednode_bootstrap.relay_command import relay
from fednode_bootstrap.relay_host import key_in
from tests.command_line import named
from tests.unit.commands.run import Fednode


def test_its_name_leads_here() -> None:
    assert named("relay") is relay


def test_the_lines_for_peers_yaml_are_printed(fednode: Fednode, tmp_path: Path) -> None:
    state = tmp_path / "relay"
    assert fednode("relay", "key", "--state", state, "--address", "relay.example.org:443") == 0
    id = node_id(key_in(state))
    assert fednode.out == f'relays:\n  - {{address: "relay.example.org:443", id: {id}}}\n'


def test_a_missing_file_is_said(fednode: Fednode, tmp_path: Path) -> None:
    code = fednode("relay", "run", "--state", tmp_path / "relay", "--peers", tmp_path / "none.yaml")
    assert code == 2
    assert "none.yaml" in fednode.err
