"""`fednode pause` and its like send their own name to the node, and print what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fednode.commands import control
from fednode.observe.client import Client
from tests.command_line import named
from tests.unit.app.founders import MESH, founded
from tests.unit.commands.run import Fednode


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("pause",), "pause"),
        (("resume",), "resume"),
        (("resume", "--alone"), "alone"),
        (("resume", "--older-state"), "resume --older-state"),
        (("leave",), "leave"),
    ],
)
def test_each_command_asks_for_what_its_words_say(
    words: tuple[str, ...],
    wanted: str,
    fednode: Fednode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a node they ask the node whose files lie in this folder."""
    asked: list[tuple[Any, ...]] = []

    async def answer(self: Client, *request: Any) -> str:
        asked.append(request)
        return "it will"

    monkeypatch.setattr(Client, "control", answer)
    name, *flags = words
    assert named(name) is getattr(control, name)
    assert fednode(name, "127.0.0.1:7191", *flags) == 0
    plan = founded(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path / MESH)
    assert fednode(name, *flags) == 0
    assert asked == [("127.0.0.1:7191", wanted), (plan.address, wanted)]
    assert fednode.out == "it will\n"


def test_a_node_that_does_not_answer_is_a_sentence(fednode: Fednode) -> None:
    assert fednode("pause", "127.0.0.1:1") == 5
    assert "Nobody answers at 127.0.0.1:1" in fednode.err
