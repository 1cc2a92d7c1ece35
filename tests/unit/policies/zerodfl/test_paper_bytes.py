"""The paper's own count of bytes."""

from __future__ import annotations

import pytest

from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig

GIB = 2**30


def test_the_papers_figures_come_back() -> None:
    """46.48 and ~4 "GB", 807 "MB": GiB and MiB of 14 bytes a number."""
    shapes = {"context": (4, 512)}
    counted = {
        k: ZeroDFL.paper_bytes(ZeroDFLConfig(recipients=k), shapes, 500, 59) for k in (59, 5, 1)
    }
    assert counted[59] / GIB == pytest.approx(46.476, abs=0.001)
    assert counted[5] / GIB == pytest.approx(3.939, abs=0.001)
    assert counted[1] / 2**20 == pytest.approx(806.6, abs=0.1)
    half = ZeroDFLConfig(recipients=5, rows_shared=2)
    assert ZeroDFL.paper_bytes(half, shapes, 500, 59) == counted[5] / 2
