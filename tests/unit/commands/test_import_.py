"""Prompts that come to a new state directory by `import`."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file

from fednode.app.saved import recall
from fednode.commands.import_ import import_
from fednode.learn.share import FORMAT, read_arrays, write_arrays
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.storage.runs import SETTINGS
from tests.command_line import named
from tests.unit.app.test_state_of_before import BEFORE
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
    other = tmp_path / "other.pth"
    torch.save({"state_dict": {"weights": torch.zeros(3)}}, other)
    assert "no CoOp checkpoint" in fednode.fault("import", other, "--state", tmp_path / "s")
    torch.save({"state_dict": {"ctx": torch.zeros(4, 7)}}, other)
    said = fednode.fault("import", other, "--state", tmp_path / "s", "--classes", "a,b")
    assert "holds context [4, 7]; zerodfl with fednode-mini" in said
    assert "names no classes" in fednode.fault("import", other, "--state", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_prompts_of_the_version_before_are_evaluated_exported_and_imported(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    """With the settings.yaml that it wrote, and a file that it exported."""
    state = tmp_path / "state"
    shutil.copytree(tuned / "state", state)
    now = yaml.safe_load((state / SETTINGS).read_text())
    before = yaml.safe_load((BEFORE / "zerodfl.yaml").read_text())
    for section in ("data", "cache", "tuning", "rounds"):  # what was tuned on, and where
        before[section] = {**before[section], **now[section]}
    (state / SETTINGS).write_text(yaml.safe_dump(before, sort_keys=False))
    assert recall(state).settings.policy.config == ZeroDFLConfig()
    assert fednode("eval", "--state", state) == 0
    file = tmp_path / "p.safetensors"
    assert fednode("export", "--state", state, file) == 0
    arrays, facts = read_arrays(file)
    kept = yaml.safe_load(facts["settings"])
    kept["policy"], kept["tuning"]["recompute"] = before["policy"], False
    write_arrays(arrays, {**facts, "settings": yaml.safe_dump(kept)}, file)
    assert fednode("import", file, "--state", tmp_path / "new") == 0
    assert recall(tmp_path / "new").prompts == recall(tuned / "state").prompts


def test_its_name_leads_here() -> None:
    assert named("import") is import_
