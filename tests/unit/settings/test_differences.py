"""Changes of the shared settings in words, and which of them a site's rule accepts."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.settings.agreed import agreed
from fednode.settings.allow import AllowSettings
from fednode.settings.differences import begins_anew, changes, in_words, refusal
from fednode.settings.read import Source, Tree, settings_of

ENDLESS = {"max": 0, "min_interval_s": 1.0}


def tree(**sections: Any) -> Tree:
    return agreed(settings_of(Source("test", sections)))


PROMPTFL = tree(policy={"name": "promptfl"}, rounds={"max": 20})
GDA = tree(policy={"name": "gda"}, rounds={"max": 20})
LONGER = tree(policy={"name": "promptfl"}, rounds={"max": 30})
DEEP = tree(policy={"name": "promptfl"}, rounds={"max": 20}, tuning={"context_length": 8})
OTHER_MODEL = tree(
    policy={"name": "promptfl"},
    rounds={"max": 20},
    model={"name": "ViT-B-16", "pretrained": "openai"},
)


def test_each_changed_key_is_a_line_with_both_values() -> None:
    found = changes(PROMPTFL, LONGER)
    assert found == [("rounds.max", 20, 30)]
    assert in_words(found, begins_anew(found)) == ["rounds.max: 20 -> 30", "the rounds go on"]


def test_another_policy_begins_the_rounds_anew() -> None:
    found = changes(PROMPTFL, GDA)
    lines = in_words(found, begins_anew(found))
    assert lines[0] == "policy.name: promptfl -> gda"
    assert "begin anew" in lines[-1]


def test_equal_settings_differ_in_nothing() -> None:
    assert changes(PROMPTFL, PROMPTFL) == []
    assert in_words([], False) == ["nothing changes"]
    pairs = {"topology": {"kind": "edges", "edges": (("a", "b"),)}}
    assert changes(pairs, {"topology": {"kind": "edges", "edges": [["a", "b"]]}}) == []


def test_true_is_not_one() -> None:
    assert changes({"policy": {"x": True}}, {"policy": {"x": 1}}) == [("policy.x", True, 1)]


def test_relays_change_with_the_settings() -> None:
    found = changes(PROMPTFL, PROMPTFL, [("a:1", "ID")], [("b:2", "ID"), ("a:1", "ID")])
    assert in_words(found, begins_anew(found)) == ["relays: a:1 -> b:2, a:1", "the rounds go on"]
    assert (
        changes(PROMPTFL, PROMPTFL, [("a:1", "X"), ("b:2", "Y")], [("b:2", "Y"), ("a:1", "X")])
        == []
    )


def test_text_of_others_does_not_reach_the_terminal() -> None:
    found = changes(PROMPTFL, {**PROMPTFL, "policy": {"name": "\x1b[2J\u202e"}})
    assert in_words(found, True)[0] == "policy.name: promptfl -> \\x1b[2J\\u202e"


def test_keys_that_are_not_set_are_said_so() -> None:
    found = changes({"rounds": {"max": 1}}, {"rounds": {"max": 1, "start": {"peers": 2}}})
    assert in_words(found, begins_anew(found))[0] == "rounds.start.peers: not set -> 2"
    assert not begins_anew(found)


@pytest.mark.parametrize(
    ("rule", "after", "why"),
    [
        (AllowSettings(), LONGER, "accepts no change by itself"),
        (AllowSettings(), PROMPTFL, "accepts no change by itself"),
        (AllowSettings(rounds=30), LONGER, ""),
        (AllowSettings(rounds=29), LONGER, "rounds.max becomes 30, and allow.rounds is 29"),
        (AllowSettings(rounds=30), PROMPTFL, ""),
        (AllowSettings(rounds=30), GDA, "allow.policies does not name 'gda'"),
        (AllowSettings(policies=("gda",)), GDA, ""),
        (AllowSettings(policies=("fedpgp",)), GDA, "does not name 'gda'"),
        (AllowSettings(policies=("gda",)), LONGER, "rounds.max becomes 30, and allow.rounds is 0"),
        (AllowSettings(policies=("promptfl",)), DEEP, "tuning.context_length changes"),
        (AllowSettings(model=True), OTHER_MODEL, ""),
        (AllowSettings(rounds=30), OTHER_MODEL, "the model changes, and allow.model is false"),
        (
            AllowSettings(rounds=9),
            {**PROMPTFL, "rounds": {"max": 0, "min_interval_s": 1.0}},
            "rounds.max becomes 0",
        ),
        (AllowSettings(rounds=9), {**PROMPTFL, "rounds": {}}, "rounds.max becomes not set"),
        (AllowSettings(rounds=9), {**PROMPTFL, "seed": 7}, "seed changes"),
        (
            AllowSettings(rounds=30, policies=("promptfl",), model=True),
            {**PROMPTFL, "topology": {"kind": "k-regular"}},
            "topology",
        ),
    ],
)
def test_what_a_rule_accepts(rule: AllowSettings, after: Tree, why: str) -> None:
    found = refusal(rule, changes(PROMPTFL, after), after)
    assert why in found
    assert bool(why) == bool(found)


def test_a_rule_without_relays_accepts_no_change_of_them() -> None:
    found = changes(PROMPTFL, PROMPTFL, [], [("a:1", "ID")])
    assert "relays changes" in refusal(AllowSettings(rounds=9), found, PROMPTFL)


def test_a_policy_brings_its_own_context() -> None:
    """A policy's own defaults come with it; another value for the same key does not."""
    deep = tree(policy={"name": "fedmaple"}, rounds={"max": 20})
    rule = AllowSettings(policies=("fedmaple",))
    assert refusal(rule, changes(PROMPTFL, deep), deep) == ""
    other = {**deep, "tuning": {**deep["tuning"], "context_length": 7}}
    assert "tuning.context_length changes" in refusal(rule, changes(PROMPTFL, other), other)
