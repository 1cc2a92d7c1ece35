"""The shared settings, and the differences of two of them, in words."""

from __future__ import annotations

from typing import Any

from fednode.settings.agreed import agreed
from fednode.settings.differences import changes, in_words, lines
from fednode.settings.read import Source, Tree, settings_of


def tree(**sections: Any) -> Tree:
    return agreed(settings_of(Source("test", sections)))


PROMPTFL = tree(policy={"name": "promptfl"}, rounds={"max": 20})
GDA = tree(policy={"name": "gda"}, rounds={"max": 20})
LONGER = tree(policy={"name": "promptfl"}, rounds={"max": 30})


def test_shared_settings_are_lines() -> None:
    said = lines(GDA)
    assert said[0] == "policy.name: gda"
    assert "rounds.max: 20" in said
    assert lines({"topology": {"edges": [["a", "b"]]}}) == ["topology.edges: a-b"]


def test_each_changed_key_is_a_line_with_both_values() -> None:
    found = changes(PROMPTFL, LONGER)
    assert found == [("rounds.max", 20, 30)]
    assert in_words(found) == ["rounds.max: 20 -> 30"]


def test_another_policy_comes_first() -> None:
    assert in_words(changes(PROMPTFL, GDA))[0] == "policy.name: promptfl -> gda"


def test_equal_settings_differ_in_nothing() -> None:
    assert changes(PROMPTFL, PROMPTFL) == []
    pairs = {"topology": {"kind": "edges", "edges": (("a", "b"),)}}
    assert changes(pairs, {"topology": {"kind": "edges", "edges": [["a", "b"]]}}) == []


def test_true_is_not_one() -> None:
    assert changes({"policy": {"x": True}}, {"policy": {"x": 1}}) == [("policy.x", True, 1)]


def test_text_of_others_does_not_reach_the_terminal() -> None:
    found = changes(PROMPTFL, {**PROMPTFL, "policy": {"name": "\x1b[2J\u202e"}})
    assert in_words(found)[0] == "policy.name: promptfl -> \\x1b[2J\\u202e"


def test_keys_that_are_not_set_are_said_so() -> None:
    found = changes({"rounds": {"max": 1}}, {"rounds": {"max": 1, "start": {"peers": 2}}})
    assert in_words(found) == ["rounds.start.peers: not set -> 2"]
