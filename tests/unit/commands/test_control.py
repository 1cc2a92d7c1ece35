"""`fednode pause` and its like send their own name to the node, and print what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.commands import control
from fednode.observe.client import Client
from tests.command_line import named
from tests.unit.commands.run import Fednode


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("pause",), "pause"),
        (("resume",), "resume"),
        (("resume", "--alone"), "alone"),
        (("resume", "--older-state"), "resume --older-state"),
    ],
)
def test_each_command_asks_for_what_its_words_say(
    words: tuple[str, ...], wanted: str, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    async def answer(self: Client, *request: Any) -> str:
        asked.append(request)
        return "it will"

    monkeypatch.setattr(Client, "control", answer)
    name, *flags = words
    assert named(name) is getattr(control, name)
    assert fednode(name, "127.0.0.1:7191", *flags) == 0
    assert asked == [("127.0.0.1:7191", wanted)]
    assert fednode.out == "it will\n"


def test_a_node_that_does_not_answer_is_a_sentence(fednode: Fednode) -> None:
    assert fednode("pause", "127.0.0.1:1") == 5
    assert "Nobody answers at 127.0.0.1:1" in fednode.err
