"""`fednode invite`: the link alone on standard output, and who may be invited."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.admission import link as links
from fednode.app.admission import register_of
from fednode.commands import invite
from tests.unit.app.founders import MESH, founded, identity_of
from tests.unit.commands.run import Fednode


def test_a_link_is_printed_and_a_second_one_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, fednode = founded(tmp_path, monkeypatch), Fednode(capsys)
    assert invite.DAYS_MAX == 365
    assert fednode("invite", "b", "--address", "10.0.0.7:7100") == 0
    link = links.read(fednode.out)
    assert (link.mesh, link.name, link.mesh_key) == (MESH, "b", plan.peers.mesh_key)
    assert link.addresses == (plan.address, "10.0.0.7:7100")
    assert link.made_by(identity_of(plan).id)
    assert "The words of the mesh, which b must see, too: " in fednode.err
    register = register_of(plan.state, identity_of(plan))
    assert fednode("invite", "b") == 0
    assert fednode("invite", "b", "--revoke") == 0
    assert fednode.out == "1 link for b ended.\n"
    assert register.tokens.end_links("b") == 0


def test_who_cannot_be_invited_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    assert "No node of this machine admits newcomers" in fednode.fault("invite", "b")
    founded(tmp_path, monkeypatch)
    assert "SITE is 'B'" in fednode.fault("invite", "B")
    assert "--days is 0" in fednode.fault("invite", "b", "--days", "0")
    assert "SITE is 'a', which is this node's own name" in fednode.fault("invite", "a")
    assert "has port 0" in fednode.fault("invite", "b", "--address", "10.0.0.7:0")
    many = [word for port in range(1, 5) for word in ("--address", f"10.0.0.7:{port}")]
    assert "a link has 4 at most" in fednode.fault("invite", "b", *many)
    assert "SITE is 'a', which is this node's own name" in fednode.fault("invite", "a", "--again")


def test_a_command_that_makes_no_link_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, fednode = founded(tmp_path, monkeypatch), Fednode(capsys)
    files = plan.state / "admission"
    before = {file.name: file.read_bytes() for file in files.iterdir()}
    long = "b" * 63
    for words in ((long,), (long, "--again")):
        assert "letters too long for a link" in fednode.fault("invite", *words)
    assert {file.name: file.read_bytes() for file in files.iterdir()} == before
