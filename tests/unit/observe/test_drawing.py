"""The page's pictures: where nodes and lines are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednode.observe.drawing import (
    BOTTOM,
    BOX,
    DOTS_MAX,
    LEFT,
    MOMENTS_MAX,
    POINTS_MAX,
    RADIUS,
    RIGHT,
    THICKEST,
    TOP,
    WIDTH,
    chart,
    graph,
    scale,
    thinned,
)

numbers = st.floats(-1e6, 1e6, allow_nan=False)


def test_nodes_stand_on_a_circle_in_the_order_of_their_names() -> None:
    drawn = graph("b", {"c": "alive", "a": "dead", "b": "running", "d": "alive"}, {})
    assert [dot.name for dot in drawn.dots] == ["a", "b", "c", "d"]
    assert [dot.x for dot in drawn.dots] == pytest.approx([0, RADIUS, 0, -RADIUS], abs=0.1)
    assert [dot.y for dot in drawn.dots] == pytest.approx([-RADIUS, 0, RADIUS, 0], abs=0.1)
    assert [dot.own for dot in drawn.dots] == [False, True, False, False]
    assert drawn.dots[0].state == "dead"
    assert [dot.anchor for dot in drawn.dots] == ["middle", "start", "middle", "end"]


def test_edges_are_as_thick_as_there_are_messages_both_ways() -> None:
    states = dict.fromkeys("abc", "alive")
    sent = {("a", "b"): 30, ("b", "a"): 10, ("a", "c"): 20, ("c", "a"): 0, ("a", "z"): 99}
    edges = graph("a", states, sent).edges
    assert [edge.title for edge in edges] == [
        "a to b: 30 messages; b to a: 10",
        "a to c: 20 messages; c to a: 0",
    ]
    assert edges[0].width == THICKEST
    assert edges[1].width == pytest.approx(0.6 + (THICKEST - 0.6) * 20 / 40)


def test_lines_fill_the_picture_and_end_with_their_last_value() -> None:
    points = [(at, float(at)) for at in range(1, 11)] + [(11, math.nan)]
    drawn = chart("Loss", {"loss": points, "nothing": []}, lambda value: f"{value:g}", (0.0, 1.0))
    (line,) = drawn.lines
    assert (line.name, line.now, drawn.first, drawn.last) == ("loss", "10", 1, 10)
    assert "loss 10" in drawn.said
    corners = [tuple(map(float, one.split(","))) for one in line.points.split()]
    assert corners[0] == pytest.approx((LEFT, BOTTOM - 0.1 * (BOTTOM - TOP)), abs=0.1)
    assert corners[-1] == pytest.approx((RIGHT, TOP), abs=0.1)
    assert [tick.text for tick in drawn.ticks] == ["0", "5", "10"]


def test_a_single_value_is_a_dot_and_a_level_is_in_the_axis() -> None:
    levels = {"own": ("zero-shot own", 0.2), "new": ("zero-shot new", 0.9)}
    drawn = chart("Accuracy", {"own": [(7, 0.8)]}, lambda value: f"{value:g}", levels=levels)
    (line,), (level,) = drawn.lines, drawn.levels
    assert line.dots == (((LEFT + RIGHT) / 2, line.dots[0][1]),)
    assert (level.name, level.now, level.at) == ("zero-shot own", "0.2", 0)
    assert TOP <= line.dots[0][1] < level.y <= BOTTOM
    assert "zero-shot own 0.2" in drawn.said
    assert [one.texts for one in drawn.moments] == [("round 7", "own 0.8")]


def test_an_axis_of_zeros_has_different_marks() -> None:
    drawn = chart("Bytes", {"sent": [(1, 0.0)]}, lambda value: f"{value:g}", (0.0, 1000.0))
    assert [tick.text for tick in drawn.ticks] == ["0", "500", "1000"]
    assert drawn.lines[0].dots[0][1] == BOTTOM


def test_charts_share_their_rounds() -> None:
    drawn = chart("Accuracy", {"own": [(20, 0.5)]}, str, span=(10, 30))
    assert (drawn.first, drawn.last) == (10, 30)
    assert drawn.lines[0].dots[0][0] == (LEFT + RIGHT) / 2
    assert (drawn.moments[0].left, drawn.moments[0].width) == (LEFT, RIGHT - LEFT)


def test_long_lines_have_no_dots() -> None:
    points = [(at, float(at)) for at in range(1, DOTS_MAX + 2)]
    short, long_ = chart("Loss", {"loss": points[:-1], "other": points}, str).lines
    assert len(short.dots) == DOTS_MAX
    assert long_.dots == ()


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=300))
def test_under_the_pointer_there_is_always_one_round(rounds: set[int]) -> None:
    own = [(at, at / 2) for at in sorted(rounds)]
    found = chart("Loss", {"own": own, "new": own[::2]}, lambda value: f"{value:g}").moments
    assert len(found) <= MOMENTS_MAX + 1
    ends = [one.left + one.width for one in found]
    assert found[0].left == LEFT
    assert ends[-1] == pytest.approx(RIGHT, abs=0.2)
    assert [one.left for one in found[1:]] == pytest.approx(ends[:-1], abs=0.2)
    for one in found:
        assert one.left - 0.1 <= one.x <= one.left + one.width + 0.1
        assert one.box >= 0
        assert one.box + BOX <= WIDTH
        assert not one.box < one.x < one.box + BOX, "the box hides no value"
        at = int(one.texts[0].removeprefix("round "))
        assert at in rounds
        assert one.texts[1] == f"own {at / 2:g}"
        assert len(one.texts) == 3 - ((at, at / 2) not in own[::2])


def test_nothing_to_draw() -> None:
    assert chart("Loss", {"loss": [(1, math.inf)]}, str).lines == ()
    assert graph("a", {"a": "running"}, {}).edges == ()


@given(numbers, numbers)
def test_axes_have_round_numbers_around_the_values(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    marks = scale(low, high)
    assert 2 <= len(marks) <= 7
    step = marks[1] - marks[0]
    assert marks[0] <= low + 1e-6 * step
    assert marks[-1] >= high - 1e-6 * step
    digits = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(digits - nice) for nice in (1, 2, 5, 10)) < 1e-3


def test_equal_values_get_an_axis_that_ends_at_zero() -> None:
    assert scale(1.0, 1.0) == pytest.approx([0.0, 0.5, 1.0])
    assert scale(0.0, 0.0) == scale(1e-12, 0.0) == pytest.approx([0.0, 0.5, 1.0])
    assert scale(-3.0, -3.0) == pytest.approx([-3.0, -2.0, -1.0, 0.0])


@given(st.integers(1, 3000))
def test_thinned_lines_keep_their_ends(count: int) -> None:
    points = [(at, 0.0) for at in range(count)]
    found = thinned(points)
    assert len(found) <= POINTS_MAX + 1
    assert (found[0], found[-1]) == (points[0], points[-1])
    assert found == sorted(set(found))
