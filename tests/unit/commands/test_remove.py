"""`fednode remove`: a site's key is revoked, also while the founder's node is down."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.admission import register_of
from fednode.commands import remove
from fednode.identity import lease as leases
from tests.unit.app.founders import MESH, founded, identity_of, link_to
from tests.unit.commands.run import Fednode
from tests.unit.identity.people import LISTED


def test_a_site_is_removed_and_can_be_invited_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, fednode = founded(tmp_path, monkeypatch), Fednode(capsys)
    assert remove.remove.name == "remove"
    register = register_of(plan.state, identity_of(plan))
    token = link_to(plan, "b").token.hex()
    register.enrol(LISTED["b"], MESH, "b", "127.0.0.1:9", token)
    assert "a knows no site 'a'; it knows b." in fednode.fault("remove", "a")
    assert fednode("remove", "b") == 0
    assert fednode.out == "b is revoked; a tells the others at its next start.\n"
    assert [leases.peek(proof).id for proof in register.revocations()] == [LISTED["b"]]
    assert [node.name for node in register.enrolled()] == ["a"]
    assert "a knows no site 'b'; it knows no other site." in fednode.fault("remove", "b")
    assert fednode("invite", "b") == 0
