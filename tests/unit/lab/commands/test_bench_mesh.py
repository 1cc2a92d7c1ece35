"""`fednode bench mesh`: which values are refused."""

from __future__ import annotations

import pytest

from fednode.lab.commands import bench_mesh
from fednode.lab.commands.bench import bench
from tests.unit.commands.run import Fednode


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("wire", "--kib", "99999"), "99999"),
        (("mesh", "--nodes", "1"), "1 is not in the range"),
        (("mesh", "--mode", "quick"), "'quick'"),
    ],
)
def test_wrong_values_are_named(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    assert fednode("bench", *words) == 2
    assert said in fednode.err


def test_its_name_leads_here() -> None:
    assert bench.commands["mesh"] is bench_mesh.mesh
