"""`fednode relay` on the command line."""

from __future__ import annotations

from pathlib import Path

from fednode_bootstrap.relay_command import relay
from tests.command_line import named
from tests.unit.commands.run import Fednode


def test_its_name_leads_here() -> None:
    assert named("relay") is relay


def test_a_missing_file_is_said(fednode: Fednode, tmp_path: Path) -> None:
    assert fednode("relay", "--state", tmp_path / "relay") == 2
    assert "peers.yaml" in fednode.err
