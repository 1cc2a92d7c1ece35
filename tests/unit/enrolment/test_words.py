"""The words of a key: always the same five, and other ones for another key."""

from __future__ import annotations

from fednode.enrolment.words import COUNT, same, words_of
from fednode.identity.keys import grouped


def test_a_key_has_five_words_which_stay() -> None:
    words = words_of(grouped(b"1" * 32))
    assert words == "track aerobic soon memory fetch"
    assert len(words_of(grouped(b"2" * 32)).split()) == COUNT
    assert words_of(grouped(b"2" * 32)) != words


def test_people_write_words_in_many_ways() -> None:
    words = "track aerobic soon memory fetch"
    assert same("Track aerobic  SOON\nmemory-fetch", words)
    assert not same("track aerobic soon memory", words)
    assert not same("", words)
