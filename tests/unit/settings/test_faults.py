"""Names that nobody knows: the nearest one is asked for."""

from __future__ import annotations

from fednode.settings.faults import meant


def test_the_name_that_is_nearest_to_what_was_said_is_asked_for() -> None:
    assert meant("hospitl-b", ["hospital-a", "hospital-b"]) == "did you mean 'hospital-b'?"
    assert meant("zoo", ["hospital-a"]) == ""
    assert meant("zoo", []) == ""
