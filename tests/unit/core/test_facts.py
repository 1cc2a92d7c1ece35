"""What peers must agree on, and the sentence that names where they do not."""

from __future__ import annotations

from fednode.core.facts import differences, fingerprint, merged_digest
from fednode.core.types import Tensors


def test_fingerprint_knows_every_key_and_value_and_no_order() -> None:
    facts = {"a": "1", "b": "2"}
    assert fingerprint(facts) == fingerprint({"b": "2", "a": "1"})
    others = [{"a": "1"}, {"a": "1", "b": "3"}, {"a": "1", "c": "2"}, {"a": "1\0b", "": "2"}]
    assert len({fingerprint(facts), *map(fingerprint, others)}) == 5


def test_differences_name_key_and_both_values() -> None:
    held = {"bob": {"a": "1", "b": "3", "c": "4"}, "al": {"a": "1", "b": "2"}}
    text = "b is 2 at 'al' and 3 at 'bob'; c is not set at 'al' and 4 at 'bob'"
    assert differences(held) == differences(dict(reversed(held.items()))) == text
    assert differences({"al": {"a": "1"}, "bob": {"a": "1"}}) == ""


def test_digests_come_last_and_short_and_shapes_only_if_nothing_else_differs() -> None:
    one, other = "1" * 64, "2" * 64
    ours = {"backbone": one, "schema": one, "tuning.context_length": "4"}
    theirs = {"backbone": other, "schema": other, "tuning.context_length": "16"}
    shapes = {"al": {"schema": one}, "bob": {"schema": other}}
    assert differences({"al": ours, "bob": theirs}) == (
        "tuning.context_length is 4 at 'al' and 16 at 'bob'; "
        "backbone is 111111111111 at 'al' and 222222222222 at 'bob'"
    )
    assert differences(shapes) == "schema is 111111111111 at 'al' and 222222222222 at 'bob'"


def test_many_differences_are_cut_short() -> None:
    ours = {f"key{number}": "x" for number in range(9)}
    text = differences({"al": ours, "bob": {}})
    assert text.count("; ") == 4
    assert text.endswith("; and 5 more")


def test_contributors_depend_on_who_and_what_but_not_on_order() -> None:
    one, two = Tensors({"a": [1.0]}), Tensors({"a": [2.0]})
    assert merged_digest({"x": one, "y": two}) == merged_digest({"y": two, "x": one})
    assert merged_digest({"x": one, "y": two}) != merged_digest({"x": two, "y": one})
