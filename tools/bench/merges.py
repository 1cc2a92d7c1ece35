"""`python -m tools.bench.merges`: the robust merges beside the plain mean, in turns.

Ten contributions of CoOp's context (16 x 512) and of PLAN's prompts and aggregators together with
ViT-B-16 (5,392,128 numbers).
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, Final, get_args, get_type_hints

import click
import numpy as np

from fednode.core.merge.robust import combine
from fednode.core.settings import MergeSettings
from fednode.core.types import Tensors
from tools.bench.timer import Figure, Timer, as_json, show

NODES: Final = 10
SIZES: Final = (16 * 512, 122_880 + 5_269_248)
RULES: Final[tuple[Any, ...]] = get_args(get_type_hints(MergeSettings)["rule"])
NOTE: Final = "of mean: in times the plain mean. memory: the peak, in times what was contributed."


def measure(size: int, repeats: int) -> Iterator[dict[str, Figure]]:
    """Yield a row for each rule, for contributions of so many numbers."""
    draw = np.random.default_rng(7)
    contributions = [Tensors({"x": draw.standard_normal(size, np.float32)}) for _ in range(NODES)]
    kept = Tensors({"x": np.zeros(size)})
    timer = Timer()

    def merge(rule: Any) -> None:
        combine(MergeSettings(rule, liars=2), contributions, [1.0] * NODES, kept)

    for _ in range(repeats):
        for rule in RULES:
            with timer.of(rule):
                merge(rule)
    for rule in RULES:
        tracemalloc.start()
        merge(rule)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield {
            "rule": rule,
            "numbers": size,
            "ms": 1e3 * timer.median(rule),
            "of mean": timer.median(rule) / timer.median("mean"),
            "memory": peak / (NODES * kept.nbytes),
        }


@click.command()
@click.option("--numbers", type=click.IntRange(min=1), multiple=True, help="Of a contribution.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@as_json
def merges(numbers: tuple[int, ...], repeats: int, as_json: bool) -> None:
    """Time every rule of `policy.merge` and count its memory."""
    rows = [row for size in numbers or SIZES for row in measure(size, repeats)]
    show(f"Merging {NODES} contributions", rows, as_json, NOTE)


if __name__ == "__main__":
    merges()
