"""`fednode sponsor`: whom the founder may give the right to admit."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.admission import keep_right, register_of, right_of
from fednode.app.founding import mesh_key_file
from fednode.commands import sponsor
from tests.unit.app.founders import MESH, founded, identity_of, link_to
from tests.unit.commands.run import Fednode
from tests.unit.identity.people import LISTED


def test_the_right_is_renewed_or_given_to_a_node_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, fednode = founded(tmp_path, monkeypatch), Fednode(capsys)
    assert sponsor.sponsor.name == "sponsor"
    before = right_of(plan.state)
    monkeypatch.setattr("time.time", lambda: 1_900_000_000.0)
    assert fednode("sponsor", "a") == 0
    assert fednode.out == "a may admit sites for another year, from its next start on.\n"
    assert right_of(plan.state) != before
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert "a knows no 'b'; it knows a." in fednode.fault("sponsor", "b")
    register = register_of(plan.state, identity_of(plan))
    keep_right(plan.state, before)
    token = link_to(plan, "b").token.hex()
    register.enrol(LISTED["b"], MESH, "b", "127.0.0.1:9", token)
    assert fednode("sponsor", "b") == 5
    assert "b was not told: " in fednode.err
    assert "Run this again when it runs." in fednode.err
    mesh_key_file(MESH).unlink()
    assert "run it on the founder's machine" in fednode.fault("sponsor", "b")
