"""Records of members that come and go: few, and none that matters is missing."""

from __future__ import annotations

from fednode.core.changes import BURST, EVERY_S, ROOMS_MAX, Changes


def test_a_member_that_comes_and_goes_writes_a_record_a_minute() -> None:
    changes, written = Changes(), 0
    seconds = 600.0
    for at in range(16_800):  # 28 pairs a second
        for state in ("left", "alive"):
            written += len(changes.record(at * seconds / 16_800, "d", state, ""))
    assert written <= BURST + seconds / EVERY_S + 1


def test_the_next_record_says_how_many_were_left_out_and_others_are_not_bound() -> None:
    changes = Changes()
    for _ in range(BURST + 5):
        changes.record(0.0, "d", "alive", "")
    assert changes.record(0.0, "d", "left", "said so") == []
    (other,) = changes.record(0.0, "b", "left", "said so")
    assert (other.text, other.level) == ("b is left: said so", "info")
    (told,) = changes.record(EVERY_S, "d", "alive", "")
    assert told.text == "d is alive (6 such changes of d before this one were left out)"


def test_a_member_that_never_answered_is_not_called_dead() -> None:
    (told,) = Changes().record(0.0, "d", "dead", "nobody answers at d:1", "unknown")
    assert (told.kind, told.text) == ("peer.dead", "d does not answer yet: nobody answers at d:1")
    assert told.level == "info", "a site that joins is named before it listens"
    (later,) = Changes().record(0.0, "d", "dead", "silent", "suspect")
    assert later.text == "d is dead: silent"


def test_a_warning_is_written_however_often_its_member_came_and_went() -> None:
    changes = Changes()
    for _ in range(1000):
        changes.record(0.0, "d", "alive", "")
    (told,) = changes.record(0.0, "d", "dead", "silent for 9 s")
    assert (told.kind, told.level) == ("peer.dead", "warning")
    assert told.text == "d is dead: silent for 9 s"


def test_many_names_take_little_room() -> None:
    changes = Changes()
    for number in range(ROOMS_MAX + 9):
        changes.record(0.0, f"n{number}", "alive", "")
    assert len(changes._rooms) == ROOMS_MAX
