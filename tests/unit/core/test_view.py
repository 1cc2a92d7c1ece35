"""The lives of a node: the drawing names them all, and they are the words that status shows."""

from __future__ import annotations

import re

from fednode.core.view import Life


def test_the_drawing_names_every_life() -> None:
    drawn = [line for line in (Life.__doc__ or "").splitlines() if "--" in line]
    states = set(re.findall(r"(\w+) <?--|--> (\w+)", "\n".join(drawn)))
    assert {word for pair in states for word in pair if word} - {"any"} == set(Life)
