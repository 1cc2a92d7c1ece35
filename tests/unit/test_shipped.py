"""Files of configs/: from an installed package, or from the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode import shipped
from fednode.shipped import config_file

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["node.yaml", "peers.yaml", "schema"])
def test_in_a_checkout_they_are_those_at_its_root(name: str) -> None:
    assert config_file(name) == ROOT / "configs" / name
    assert config_file(name).exists()


def test_what_a_wheel_carries_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs").mkdir()
    monkeypatch.setattr(shipped, "PACKAGE", tmp_path)
    assert config_file("node.yaml") == tmp_path / "configs" / "node.yaml"
