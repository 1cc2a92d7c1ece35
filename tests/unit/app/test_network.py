"""A node's connection to its mesh: which key of this machine may ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.network import key_folder
from fednode.errors import ConfigError
from tests.unit.commands.run import Fednode


def test_any_key_of_the_mesh_on_this_machine_may_ask(fednode: Fednode, tmp_path: Path) -> None:
    root = tmp_path / ".local/state/fednode/clinic"
    with pytest.raises(ConfigError, match=f"no node of it has a key below {root}: give a node's"):
        key_folder("clinic", None)
    assert fednode("init", "--tls", "--nodes", "2", "--mesh", "clinic") == 0
    assert key_folder("clinic", None) == root / "a"
    assert key_folder("clinic", Path("b")) == root / "b"
    assert key_folder("clinic", Path("elsewhere/b")) == Path("elsewhere/b")
    (tmp_path / "b").mkdir()
    assert key_folder("clinic", Path("b")) == Path("b")
    assert fednode.fault("status").startswith("None of the 2 nodes answers (a, b)")
