"""Prompts that come to a new state directory by `import`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from fednode.app.state_dir import recall
from fednode.core.types import Tensors
from fednode.learn.export import FORMAT, write_arrays
from tests.unit.commands.run import Fednode


def test_a_file_that_holds_no_prompts_is_a_sentence(fednode: Fednode, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.safetensors"
    assert "There is no file" in fednode.fault("import", nothing, "--state", tmp_path / "s")
    nothing.write_bytes(b"no tensors")
    assert "cannot be read as safetensors" in fednode.fault(
        "import", nothing, "--state", tmp_path / "s"
    )
    save_file({"context": torch.zeros(4, 7)}, nothing, {"format": FORMAT, "round": "1e9"})
    assert "holds metadata that `fednode export` did not write" in fednode.fault(
        "import", nothing, "--state", tmp_path / "s"
    )
    for facts, said in (
        ({}, "names no classes"),
        ({"classes": '["a", "b"]'}, "holds context [4, 7]; zerodfl with fednode-mini"),
    ):
        write_arrays(Tensors({"context": np.zeros((4, 7))}), facts, nothing)
        assert said in fednode.fault("import", nothing, "--state", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_exported_prompts_are_imported(fednode: Fednode, tuned: Path, tmp_path: Path) -> None:
    file = tmp_path / "p.safetensors"
    assert fednode("export", "--state", tuned / "state", file) == 0
    assert fednode("import", file, "--state", tmp_path / "new") == 0
    found, before = recall(tmp_path / "new"), recall(tuned / "state")
    assert found.prompts == before.prompts
    assert found.settings.policy == before.settings.policy
