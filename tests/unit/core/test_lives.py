"""Lives: what a node believes of its own key's life, and whom it names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fednode.core import events as ev
from fednode.core.kernel import Kernel
from fednode.core.life import Life
from fednode.core.lives import OLDER, TWICE, UNDER_WAY, Lives
from fednode.core.members.table import Members
from fednode.core.types import EMPTY, Job, Mark, Past, PolicyState, Snapshot, Update
from tests.unit.core.scenes import FACTS, context, message, only, recorded, zerodfl

PROOF = b"signed"


def mark(released: int, process: str = "e", proof: bytes = PROOF, round_: int = 0) -> Mark:
    return Mark(process=process, run=0, round=round_, released=released, proof=proof)


def lives(
    released: int = 5, peers: str = "bcd", private: bool = True, past: Past | None = None
) -> Lives:
    """Return the lives of node "a", process "f", which knows of so many releases."""
    own = replace(context(), process="f", private=private)
    held = Snapshot(PolicyState(released, EMPTY, EMPTY), {}, released=released)
    return Lives.of(own, Members(peers), held, past or Past(), lambda one: PROOF)


def told(known: Mark | None, peer: str = "b") -> ev.Delivered:
    return ev.Delivered(peer, message("hello"), known=known)


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        (None, 0),
        (mark(5), 0),  # what it knows itself
        (mark(9, process="f"), 0),  # its own process
        (mark(6), 1),
        (mark(12), 7),
        (mark(12, proof=b""), 0),  # one member's word
    ],
)
def test_a_signed_mark_that_says_more_is_counted(known: Mark | None, missing: int) -> None:
    made = lives()
    spent = missing + UNDER_WAY if missing else 0
    effects = made.told(told(known))
    assert [one.releases for one in only(effects, ev.Spend)] == ([spent] if spent else [])
    assert bool(made.undecided) == bool(missing)
    assert made.released == 5 + spent
    assert not made.told(told(known, "c")), "it counts once, whoever shows it"


@pytest.mark.parametrize(("peers", "voices"), [("b", 0), ("bc", 2), ("bcd", 3), ("bcdefg", 4)])
def test_unsigned_words_count_from_more_than_half_of_all_members(peers: str, voices: int) -> None:
    made = lives(peers=peers)
    found = [bool(made.told(told(mark(12, proof=b""), peer))) for peer in peers]
    wanted = [at == voices for at in range(1, len(peers) + 1)] if voices else [False] * len(peers)
    assert found == wanted


def test_the_largest_lies_of_a_minority_do_not_raise_what_most_say() -> None:
    made = lives(peers="bcdef")
    for peer, released in zip("bcdef", (10**9, 10**9, 8, 7, 6), strict=True):
        made.told(told(mark(released, proof=b""), peer))
    assert made.released == 7 + UNDER_WAY, "of six members four know of 7 at least"


def test_without_privacy_a_node_warns_and_goes_on() -> None:
    made = lives(private=False)
    (record,) = only(made.told(told(mark(12, round_=12))), ev.Record)
    assert (record.kind, record.level) == (OLDER, "warning")
    assert "round 12" in record.text
    assert "9 releases" in record.text
    assert made.warnings() == (record.text,)
    assert not made.undecided


def test_another_process_whose_mark_grows_lives_now() -> None:
    made = lives()
    assert recorded(made.told(told(mark(8)))) == [OLDER]
    effects = made.told(told(mark(9)))
    assert recorded(effects) == [TWICE]
    assert only(effects, ev.Spend) == [ev.Spend(1, made.undecided)]


def test_a_silent_node_sends_no_prompts_until_its_operator_accepts() -> None:
    made = lives()
    made.told(told(mark(8)))
    prompts, hello = ev.Send("b", message("prompts")), ev.Send("b", message("hello"))
    assert made.counted([prompts, hello]) == [hello]
    assert made.accept() == [ev.Spend(0)]
    assert made.counted([prompts, hello]) == [prompts, hello]
    (to_b, to_c) = only(made.counted([prompts, replace(prompts, to="c")]), ev.Send)
    assert to_b.message is to_c.message, "one frame for both"
    assert to_b.message.mark == made.mark
    assert not made.warnings()


def test_releases_are_counted_into_each_snapshot() -> None:
    made, tensors = lives(), EMPTY
    job = Job(round=6, stage="prompts", tensors=tensors, seed=1)
    measure = replace(job, stage="measure")
    made.heard(0.0, "b", mark(3, "b0"), 1.0)
    state = Snapshot(PolicyState(6, EMPTY, EMPTY), {})
    *_, adopt = made.counted([ev.Tune(job), ev.Tune(measure), ev.Adopt(state)])
    assert isinstance(adopt, ev.Adopt)
    assert adopt.snapshot.released == 6
    assert adopt.snapshot.marks == {"b": mark(3, "b0")}
    before = made.mark
    assert before is not None
    assert before.released == 5
    made.adopted(adopt.snapshot)
    assert made.mark == mark(6, "f", round_=6)


def test_the_account_of_a_node_that_was_undecided_keeps_it_silent() -> None:
    made = lives(past=Past(9, "its key has spoken"))
    assert made.released == 9
    assert made.warnings() == ("its key has spoken",)


@pytest.mark.parametrize(
    ("said", "answered"),
    [(mark(4, "new"), True), (mark(7, "new"), False), (mark(6, "old"), False), (None, False)],
)
def test_a_peer_is_told_what_it_does_not_know_of_itself(said: Mark | None, answered: bool) -> None:
    made = lives()
    made.heard(0.0, "b", mark(7, "old"), 1.0)
    assert made.answer("b", said) == (mark(7, "old") if answered else None)
    assert made.answer("c", said) is None


def test_two_processes_that_speak_in_turns_are_named() -> None:
    made = lives()
    said = [
        recorded(made.heard(now, "b", mark(3, process), 2.0))
        for now, process in [(0, "x"), (1, "y"), (2, "x"), (3.5, "x"), (4, "y"), (6, "y"), (7, "x")]
    ]
    assert said == [[], [], [], [], [], [TWICE], []], "late messages are none; it is said once"
    assert "two processes speak with the key of b" in made.warnings()[0]
    assert made.answer("b", mark(3, "x")) == mark(3, "y")
    made.heard(40.0, "b", mark(3, "y"), 2.0)
    assert not made.warnings(), "one of them has ended"


def test_an_earlier_process_that_is_heard_later_is_no_second_one() -> None:
    """A message of the process before the last restart was on its way for long."""
    made = lives()
    heard = [(0.0, "new"), (0.1, "old"), *((float(at), "new") for at in range(1, 40))]
    for now, process in heard:
        assert not made.heard(now, "b", mark(3, process), 2.0)
    assert made.warnings() == ()


def test_a_process_that_restarts_on_and_on_is_one_process() -> None:
    made = lives()
    for at in range(50):
        assert not made.heard(float(10 * at), "b", mark(at, f"{at:x}"), 2.0)
    assert not made.warnings()


def kernel(past: Past | None = None) -> Kernel:
    own = replace(context(), process="f", private=True)
    made = Kernel(own, zerodfl(), FACTS, anew=zerodfl, past=past, prove=lambda _: PROOF)
    made.step(0.0, ev.Started())
    return made


def command(made: Kernel, word: Any) -> list[ev.Effect]:
    return made.step(2.0, ev.Commanded(word))


def test_a_kernel_that_is_told_pauses_and_says_how_it_goes_on() -> None:
    made = kernel()
    effects = made.step(1.0, told(mark(3)))
    assert only(effects, ev.Spend)
    assert not only(effects, ev.Tune), "it would have begun round one with this answer"
    assert made.view().life == Life.PAUSED
    assert made.view().undecided
    assert "fednode accept a" in made.view().warnings[0]
    for word in ("resume", "alone"):
        (record,) = only(command(made, word), ev.Record)
        assert record.level == "warning"
    effects = command(made, "accept")
    assert only(effects, ev.Tune)
    assert made.view().life == Life.RUNNING
    assert only(command(made, "accept"), ev.Record)[0].level == "warning"


def test_a_kernel_starts_silent_where_its_account_says_so() -> None:
    made = kernel(Past(3, "its key has spoken"))
    assert not only(made.step(1.0, told(None)), ev.Tune)
    assert made.view().life == Life.PAUSED


def test_a_kernel_answers_a_mark_with_a_newer_one() -> None:
    made = kernel()
    made.step(1.0, ev.Received(message("hello", mark=mark(9, "old"), facts=FACTS), 1))
    effects = made.step(2.0, ev.Received(message("ping", mark=mark(4, "new")), 2))
    assert only(effects, ev.Answer)[0].known == mark(9, "old")


def test_marks_belong_to_a_key_and_a_new_key_of_the_name_begins_a_new_life() -> None:
    made = lives()

    def holds(id: str) -> None:
        made.members.place(Update("b", "alive", 1, "", id), "b")

    made.heard(0.0, "b", mark(9, "old"), 1.0)  # its key is not known yet
    holds("KEY-1")
    assert made.answer("b", mark(1, "restored")) == mark(9, "old")
    assert made.known("b") == mark(9, "old")
    holds("KEY-2")
    for round_ in range(3):
        assert made.heard(10.0 + round_, "b", mark(round_, "new"), 1.0) == []
        assert made.answer("b", mark(round_, "new")) is None
    assert made.warnings() == ()
    assert made.answer("b", mark(1, "copied")) == mark(2, "new")
    holds("KEY-1")
    assert made.answer("b", mark(1, "restored")) == mark(9, "old")
    assert set(made.marks) == {"KEY-1", "KEY-2"}
