"""The starts of members: which round an earlier start said, and who speaks twice."""

from __future__ import annotations

from fednode.core.starts import COPIED, Boots
from tests.unit.core.scenes import message, recorded

LATE_S = 2.0


def heard(
    boots: Boots, now: float, boot: str, round_number: int = 3, key: str = "KEY-1"
) -> list[str]:
    said = message("ping", boot=boot, round=round_number)
    return recorded(boots.heard(now, said, key, LATE_S))


def later(boots: Boots, boot: str, round_number: int) -> int:
    return boots.later(message("ping", boot=boot, round=round_number))


def test_a_member_is_told_the_last_round_of_the_start_before_if_it_is_later() -> None:
    boots = Boots()
    assert later(boots, "old", 0) == 0
    for at, (boot, round_number) in enumerate([("old", 8), ("old", 9), ("new", 4)]):
        assert not heard(boots, at, boot, round_number)
    assert later(boots, "new", 4) == 9
    heard(boots, 3.0, "new", 8)
    assert later(boots, "new", 8) == 9, "also in later answers: the first may be lost"
    assert later(boots, "new", 9) == 0
    heard(boots, 4.0, "newer", 1)
    assert later(boots, "newer", 1) == 8


def test_nothing_is_known_of_a_member_that_says_no_boot_id() -> None:
    boots = Boots()
    for at, round_number in enumerate((9, 4)):
        assert not heard(boots, at, "", round_number)
    assert later(boots, "", 4) == 0


def test_two_processes_that_speak_in_turns_are_named_once() -> None:
    boots = Boots()
    turns = [(0, "x"), (1, "y"), (2, "x"), (3.5, "x"), (4, "y"), (6, "y"), (7, "x"), (8, "y")]
    said = [heard(boots, now, boot) for now, boot in turns]
    assert said == [[], [], [], [], [], [], [COPIED], []]
    assert "two processes speak with the key of b" in boots.warnings()[0]
    heard(boots, 40.0, "y")
    assert boots.warnings() == [], "one of them has ended"


def test_a_late_message_of_an_earlier_start_is_no_second_process() -> None:
    boots = Boots()
    heard(boots, 0.0, "new")
    heard(boots, 0.1, "old")
    for at in range(1, 40):
        assert not heard(boots, float(at), "new")
    assert not heard(boots, 40.0, "newest")
    assert not heard(boots, 40.1, "new"), "as after each restart"
    for at in range(41, 80):
        assert not heard(boots, float(at), "newest")
    assert boots.warnings() == []


def test_many_late_messages_of_an_earlier_start_are_no_second_process() -> None:
    boots = Boots()
    for at in range(20):
        assert not heard(boots, 0.1 * at, ("old", "new")[at % 2])
    for at in range(2, 40):
        assert not heard(boots, float(at), "new")


def test_a_process_that_restarts_on_and_on_is_one_process() -> None:
    boots = Boots()
    for at in range(50):
        assert not heard(boots, 10.0 * at, f"{at:x}")
    assert boots.warnings() == []


def test_a_new_key_of_a_name_begins_anew() -> None:
    boots = Boots()
    heard(boots, 0.0, "old", 9, key="")
    heard(boots, 1.0, "old", 9)
    heard(boots, 2.0, "new", 1, key="KEY-2")
    assert later(boots, "new", 1) == 0
    heard(boots, 3.0, "newer", 0, key="KEY-2")
    assert later(boots, "newer", 0) == 1
