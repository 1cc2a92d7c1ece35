"""Curves: what is drawn, and legends that are not cut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fednode.lab.experiment.picture import LABEL_MAX, Panel, figure, panels_of

pytest.importorskip("matplotlib.figure")


def run(label: str, **outcome: Any) -> Any:
    """Return a run of an experiment as far as a picture needs it."""
    method = SimpleNamespace(label=label)
    return SimpleNamespace(cell=SimpleNamespace(method=method), outcome=outcome)


def test_a_method_that_learns_nothing_is_a_level() -> None:
    half, most = {"x/own": {"a": 0.5, "b": 0.7}}, {"x/own": {"a": 0.9, "b": 0.9}}
    done = [
        run("zero-shot", scores={"x/own": {"a": 0.2, "b": 0.4}}),
        run("zero-shot", scores={"x/own": {"a": 0.3, "b": 0.5}}),
        run("local", scores=most, curve={"1": half, "2": most}, loss=[3.0, 2.0], consensus=[]),
        run("broken"),
    ]
    accuracy, loss = panels_of(done)
    assert accuracy.level is not None
    assert accuracy.level[0] == "zero-shot"
    assert accuracy.level[1] == pytest.approx(35.0)
    assert [*accuracy.lines] == ["local"]
    assert accuracy.lines["local"][1] == pytest.approx([60.0])
    assert accuracy.lines["local"][2] == pytest.approx([90.0])
    assert loss.lines == {"local": {1: [3.0], 2: [2.0]}}
    assert panels_of(done[2:])[0].level is None


def test_base_and_new_classes_have_a_panel_each_over_all_data_sets() -> None:
    first = {"x/base": {"a": 0.5}, "x/new": {"a": 0.1}, "y/base": {"b": 0.7}, "y/own": {"b": 1.0}}
    done = [run("ours", scores=first, curve={"1": first}), run("zero-shot", scores=first)]
    base, new = panels_of(done)
    assert (base.title, new.title) == (
        "accuracy on base classes (%)",
        "accuracy on new classes (%)",
    )
    assert base.lines["ours"][1] == pytest.approx([60.0])
    assert new.lines["ours"][1] == pytest.approx([10.0])
    levels = [dict([one.level or ("", 0.0)]) for one in (base, new)]
    assert levels == [{"zero-shot": pytest.approx(60.0)}, {"zero-shot": pytest.approx(10.0)}]


@pytest.mark.parametrize("count", [1, 7, 50])
@pytest.mark.parametrize("length", [3, 12, 100])
def test_no_legend_is_cut_and_every_label_is_there_once(count: int, length: int) -> None:
    names = [f"{at:03d}".ljust(length, "x") for at in range(count)]
    panel = Panel("accuracy", {name: {1: [1.0], 2: [2.0]} for name in names[1:]}, (names[0], 1.5))
    for panels in ([panel], [panel, Panel("loss", panel.lines)]):
        drawn = figure(panels)
        drawn.draw_without_rendering()
        (legend,) = drawn.legends
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= drawn.bbox.x1
        assert box.y0 >= 0
        shown = sorted(one.get_text() for one in legend.get_texts())
        assert [one[:3] for one in shown] == [name[:3] for name in names]
        assert max(map(len, shown)) <= LABEL_MAX
        for axis in drawn.axes:
            assert axis.get_window_extent().height > 2.5 * drawn.dpi, "the panel keeps its room"
            assert axis.get_window_extent().y0 >= box.y1, "the legend covers nothing"
