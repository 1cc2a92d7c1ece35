"""The paper's own count of bytes."""

from __future__ import annotations

import pytest

from fednode.policies.zerodfl.accounting import PAPER_BYTES, exchanged

GIB = 2**30


def test_the_papers_figures_come_back() -> None:
    """46.48 and ~4 "GB", 807 "MB": GiB and MiB of 14 bytes a number (METHODS section 1)."""
    assert 4 * 512 * PAPER_BYTES == 28 * 1024
    counted = {k: exchanged(500, 59, k, 4 * 512, PAPER_BYTES) for k in (59, 5, 1)}
    assert counted[59] / GIB == pytest.approx(46.476, abs=0.001)
    assert counted[5] / GIB == pytest.approx(3.939, abs=0.001)
    assert counted[1] / 2**20 == pytest.approx(806.6, abs=0.1)
