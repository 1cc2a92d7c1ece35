"""The time left of an experiment, on a clock that the tests set."""

from __future__ import annotations

import pytest

from fednode.lab.experiment.remaining import Left, Remaining, span

TOOK = {"zero-shot": 1.0, "local": 20.0, "ours": 60.0}


def runs(seeds: int) -> list[tuple[str, str]]:
    """Return the runs in the order of an experiment: all methods of a seed, then the next seed."""
    return [(f"{method} {seed}", method) for seed in range(seeds) for method in TOOK]


def test_one_process_takes_as_long_as_the_methods_that_are_missing() -> None:
    clock, left = 100.0, Remaining(runs(3), 1, 100.0)
    assert left.left(clock) == Left(0.0, 3)
    for at, (key, method) in enumerate(runs(3)):
        clock += TOOK[method]
        left.end(key, TOOK[method], clock)
        missing = [one for _, one in runs(3)[at + 1 :]]
        timed = set(list(TOOK)[: at + 1])
        expected = sum(TOOK[one] for one in missing if one in timed)
        assert left.left(clock).seconds == pytest.approx(expected)
        assert left.left(clock).untimed == len(set(TOOK) - timed)


def test_short_runs_do_not_make_the_others_look_short() -> None:
    """Eight minutes remain after eight runs of a second: no estimate says 15 seconds."""
    order = [(f"zero-shot {at}", "zero-shot") for at in range(8)]
    order += [(f"ours {at}", "ours") for at in range(8)]
    left = Remaining(order, 1, 0.0)
    for at, (key, _) in enumerate(order[:8]):
        left.end(key, 1.0, at + 1.0)
    assert str(left.left(8.0)) == "time left unknown: 1 method has not been timed yet"
    left.end("ours 0", 60.0, 68.0)
    assert str(left.left(68.0)) == "about 7 min left"
    assert str(left.left(98.0)) == "about 6 min left"  # half of the second run is over


def test_processes_share_the_runs_as_a_pool_does() -> None:
    order = [("a 1", "a"), ("b 1", "b"), ("a 2", "a"), ("b 2", "b"), ("a 3", "a")]
    left = Remaining(order, 2, 0.0)
    left.end("a 1", 10.0, 10.0)  # "a 2" starts
    left.end("a 2", 10.0, 20.0)  # "b 2" starts
    left.end("b 1", 30.0, 30.0)  # "a 3" starts
    # "b 2" ends 30 s after its start at 20 s; "a 3" ends before it.
    assert left.left(30.0) == Left(20.0, 0)
    assert left.left(60.0) == Left(0.0, 0)


def test_runs_from_before_tell_how_long_a_method_takes() -> None:
    left = Remaining(runs(2), 1, 0.0)
    for key, method in runs(1):
        left.keep(key, TOOK[method])
    assert left.left(0.0) == Left(81.0, 0)
    left.end("zero-shot 1", None, 4.0)  # it failed, and needed four seconds for it
    assert left.left(4.0) == Left(80.0, 0)


def test_a_first_run_counts_without_the_time_that_its_process_loaded_the_model() -> None:
    left = Remaining(runs(2), 1, 0.0)
    left.end("zero-shot 0", 1.0, 15.0)
    left.end("local 0", 20.0, 36.0)
    left.end("ours 0", 60.0, 97.0)
    assert left.left(97.0) == Left(1.0 + 21.0 + 61.0, 0)


def test_runs_that_end_at_once_may_be_told_in_another_order() -> None:
    left = Remaining([("a 1", "a"), ("b 1", "b"), ("a 2", "a"), ("b 2", "b")], 1, 0.0)
    left.end("b 1", 5.0, 15.0)
    left.end("a 1", 10.0, 15.0)
    assert left.left(15.0) == Left(15.0, 0)


def test_spans_of_time() -> None:
    assert [span(one) for one in (14.6, 61, 89.4 * 60, 9000)] == [
        "15 s",
        "1 min",
        "89 min",
        "2.5 h",
    ]
