"""A step of tuning beside open_clip's own encoders, with the shipped model: seconds, not minutes.

`fednode bench tuning` measures ViT-B/16 and other architectures in the same way.
"""

from __future__ import annotations

import pytest

from fednode.clip.settings import MINI
from fednode.lab.bench import measure, tasks
from tests.bench.figures import publish


@pytest.mark.bench
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_step_beside_open_clip(precision: measure.Precision) -> None:
    frozen = measure.random_model(MINI, precision, "cpu", threads=2)
    rows = list(measure.rows(frozen, tasks.TASKS, repeats=2))
    shown: list[dict[str, str | float]] = [
        {
            "step": row.name.removesuffix("-bf16"),
            "open_clip, s": row.reference_s,
            "ours, s": row.ours_s,
            "ratio": row.ratio,
            "floor": row.floor_share,
            "ref. rate": row.reference_share,
        }
        for row in rows
    ]
    publish(f"tuning-{precision}", f"{MINI}, {precision}", shown)
    assert all(row.difference < (1e-3 if precision == "float32" else 0.5) for row in rows)
