"""`fednode leave`: the goodbye of the node in this folder, or of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fednode.commands import leave
from fednode.observe.client import Client
from tests.command_line import named
from tests.unit.app.founders import MESH, founded
from tests.unit.commands.run import Fednode


def test_the_node_is_asked_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[tuple[Any, ...]]()

    async def control(self: Client, *request: Any) -> str:
        asked.append(request)
        return "it said goodbye"

    monkeypatch.setattr(Client, "control", control)
    plan, fednode = founded(tmp_path, monkeypatch), Fednode(capsys)
    assert named("leave") is leave.leave
    monkeypatch.chdir(tmp_path)
    assert fednode("leave", "127.0.0.1:7191") == 0
    monkeypatch.chdir(tmp_path / MESH)
    assert fednode("leave") == 0
    assert fednode.out == "it said goodbye\n"
    assert asked == [("127.0.0.1:7191", "leave"), (plan.address, "leave")]
