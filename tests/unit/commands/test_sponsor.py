"""`fednode sponsor`: whom the founder may make a sponsor."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.create import mesh_key_file
from fednode.commands import sponsor
from tests.unit.app.founders import MESH, founded
from tests.unit.commands.run import Fednode


def test_the_right_is_renewed_or_given_to_a_node_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, fednode = founded(tmp_path, monkeypatch), Fednode(capsys)
    monkeypatch.chdir(tmp_path / MESH)
    assert sponsor.sponsor.name == "sponsor"
    file = plan.state / "identity" / "node.crt"
    before = file.read_bytes()
    assert fednode("sponsor", "a") == 0
    assert fednode.out == "a may admit sites for another year, from its next start on.\n"
    assert file.read_bytes() != before
    assert fednode("sponsor", "b") == 5
    assert "b was not told: " in fednode.err
    assert "Run this again when a runs." in fednode.err
    copy = tmp_path / "copy.key"
    mesh_key_file(MESH).rename(copy)
    assert "run it on the founder's machine" in fednode.fault("sponsor", "a")
    assert fednode("sponsor", "a", "--mesh-key", str(copy)) == 0
