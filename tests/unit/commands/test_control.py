"""`fednode pause` and its like send their own name to the node, and print what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.app.plan import NodePlan
from fednode.observe.client import Client
from tests.unit.commands.run import Fednode

COMMANDS = {
    "pause": "pause",
    "resume": "resume",
    "resume --alone": "alone",
    "resume --older-state": "resume --older-state",
    "leave": "leave",
}
"""What each command asks the node for."""


def test_each_command_asks_for_what_its_words_say(
    fednode: Fednode, founder: NodePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a node they ask the node whose files lie in this folder."""
    asked: list[tuple[Any, ...]] = []

    async def answer(self: Client, *request: Any) -> str:
        asked.append(request)
        return "it will"

    monkeypatch.setattr(Client, "control", answer)
    for words in COMMANDS:
        name, *flags = words.split()
        assert fednode(name, "a", *flags) == 0
        assert fednode(name, *flags) == 0
        assert fednode.out == "it will\n"
    wanted = [(founder.address, word) for word in COMMANDS.values() for _ in range(2)]
    assert asked == wanted


def test_a_node_that_does_not_answer_is_a_sentence(fednode: Fednode) -> None:
    assert fednode("pause", "127.0.0.1:1") == 5
    assert "Nobody answers at 127.0.0.1:1" in fednode.err
