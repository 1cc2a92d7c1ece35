"""A site as the page shows it."""

from __future__ import annotations

from fednode.observe.admitting import Site


def test_words_are_added_to_a_site() -> None:
    site = Site("b", "b.example:7100", "ID")
    assert site.with_words("one two") == Site("b", "b.example:7100", "ID", "one two")
    assert site.words == ""
