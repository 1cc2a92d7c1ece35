"""Prompts that leave a node by `export`, and what another program makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from fednode.api import load
from fednode.app.state_dir import recall
from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.core.types import Tensors
from fednode.learn.export import write_arrays
from tests.unit.clip import folders, tiny
from tests.unit.commands.run import Fednode
from tests.unit.commands.tuned import tune_in
from tests.unit.storage.stored import read_snapshot


def probabilities(fednode: Fednode, state: Path, images: Path) -> dict[str, dict[str, float]]:
    assert fednode("predict", "--state", state, "--format", "json", images) == 0
    found = [json.loads(line) for line in fednode.out.splitlines()]
    return {one["image"]: one["classes"] for one in found}


def test_exported_prompts_come_back_as_they_were(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    file = tmp_path / "p.safetensors"
    assert fednode("export", "--state", tuned / "state", file) == 0
    with safe_open(file, "np") as opened:
        facts = opened.metadata()
    assert (facts["policy"], facts["round"]) == ("zerodfl", "1")
    assert str(tuned) not in json.dumps(facts), "no paths of this machine"
    again = tmp_path / "again"
    assert fednode("import", file, "--state", again) == 0
    images = tuned / "images"
    before = probabilities(fednode, tuned / "state", images)
    assert probabilities(fednode, again, images) == before
    # A node that starts there begins from these prompts.
    snapshot, held = read_snapshot(again), recall(tuned / "state")
    assert snapshot.policy.round == 0
    assert snapshot.policy.tensors == snapshot.policy.tuned == held.prompts
    assert recall(again).settings.policy == held.settings.policy
    assert "holds a node's state already" in fednode.fault("import", file, "--state", again)


def test_a_matrix_classifies_alike_with_open_clip_alone(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    """The ten lines of docs/operations.md; the model's own encoder stands for open_clip's."""
    file = tmp_path / "texts.safetensors"
    assert fednode("export", "--state", tuned / "state", "--as", "matrix", file) == 0
    with safe_open(file, "pt") as opened:
        texts, scale = opened.get_tensor("text_features"), opened.get_tensor("logit_scale")
        classes = json.loads(opened.metadata()["classes"])
    torch.testing.assert_close(texts.norm(dim=1), torch.ones(len(classes)))
    model = clip.load(ModelSettings())
    for path, known in probabilities(fednode, tuned / "state", tuned / "images").items():
        with Image.open(path) as image, torch.no_grad():
            pixels = model.preprocess(image.convert("RGB"))[None]
            seen = torch.nn.functional.normalize(model.model.encode_image(pixels), dim=1)
        found = (scale * seen @ texts.T).softmax(dim=1)[0]
        for name, value in zip(classes, found.tolist(), strict=True):
            assert value == pytest.approx(known[name], abs=1e-4)


def test_the_path_of_a_checkpoint_stays_and_import_is_told_it(
    fednode: Fednode, tmp_path: Path
) -> None:
    weights = tmp_path / "jane-doe" / "tiny.safetensors"
    weights.parent.mkdir()
    save_file(tiny.clip().state_dict(), weights)
    name = tiny.register(tmp_path)
    try:
        flags = (f"model.name={name}", f"model.pretrained={weights}")
        state, file = tune_in(tmp_path / "site", *flags), tmp_path / "p.safetensors"
        for layout in ("safetensors", "matrix"):
            assert fednode("export", "--state", state, "--as", layout, file) == 0
            assert b"jane-doe" not in file.read_bytes()
        assert fednode("export", "--state", state, file) == 0
        assert "model.pretrained is not set" in fednode.fault(
            "import", file, "--state", tmp_path / "again"
        )
        sets = [word for flag in flags for word in ("--set", flag)]
        assert fednode("import", file, "--state", tmp_path / "again", *sets) == 0
    finally:
        open_clip.factory._MODEL_CONFIGS.pop(name)


def test_the_path_of_a_folder_stays_and_import_is_told_it(fednode: Fednode, tmp_path: Path) -> None:
    """Training, `export`, `import` and `predict` with a model of BiomedCLIP's form."""
    folder = folders.biomedical(tmp_path / "jane-doe" / "biomed")
    given = f"model.name=local-dir:{folder}"
    state = tune_in(tmp_path / "site", given)
    file = tmp_path / "p.safetensors"
    for layout in ("matrix", "safetensors"):
        assert fednode("export", "--state", state, "--as", layout, file) == 0
        assert b"jane-doe" not in file.read_bytes()
    with safe_open(file, "np") as opened:
        assert opened.metadata()["model"] == "local-dir: (a folder)"
    again = tmp_path / "again"
    assert "'local-dir:', which names no folder" in fednode.fault("import", file, "--state", again)
    assert fednode("import", file, "--state", again, "--set", given) == 0
    images = tmp_path / "site" / "images"
    assert probabilities(fednode, again, images) == probabilities(fednode, state, images)


def test_a_file_that_holds_no_prompts_is_a_sentence(fednode: Fednode, tmp_path: Path) -> None:
    file, words = tmp_path / "nothing.safetensors", ("--state", tmp_path / "s")
    assert "There is no file" in fednode.fault("import", file, *words)
    file.write_bytes(b"no tensors")
    assert "cannot be read as safetensors" in fednode.fault("import", file, *words)
    for facts, said in (
        ({"round": "1e9"}, "holds metadata that `fednode export` did not write"),
        ({}, "names no classes"),
        ({"classes": '["a", "b"]'}, "holds context [4, 7]; zerodfl with fednode-mini"),
    ):
        write_arrays(Tensors({"context": np.zeros((4, 7))}), facts, file)
        assert said in fednode.fault("import", file, *words)
    assert not (tmp_path / "s").exists()


def test_a_place_that_cannot_be_written_is_a_sentence(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    to = tmp_path / "no/such/folder/p.safetensors"
    said = fednode.fault("export", "--state", tuned / "state", to)
    assert said.startswith(f"{to} cannot be written: No such file or directory; free space")
    (tmp_path / "file").touch()
    said = fednode.fault("export", "--state", tuned / "state", tmp_path / "file" / "p.safetensors")
    assert "cannot be written: a file is where a folder is to be; free space" in said


def test_class_sums_leave_as_weights(fednode: Fednode, tmp_path: Path) -> None:
    """Whoever has the scatter of few images tells for each image whether it was one."""
    more = ("policy.name=local", "policy.head=gda")
    state, out = tune_in(tmp_path, *more), tmp_path / "p.safetensors"
    sums = recall(state).prompts
    assert fednode("export", "--state", state, out) == 0
    with safe_open(out, "np") as opened:
        arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    assert set(arrays) == {"weights", "personal_weights"}
    width = sums["own/scatter"].shape[0]
    assert {array.shape[0] for array in arrays.values()} == {2}, "no array of D x D"
    for array in arrays.values():
        for row in sums["rows/"][:, 1:]:
            lengths = np.linalg.norm(array[:, -1 - width : -1], axis=1) * np.linalg.norm(row[1:])
            assert (np.abs(array[:, -1 - width : -1] @ row[1:]) < 0.999 * lengths).all()
    images = tmp_path / "images"
    asked = sorted(images.rglob("*.png"))
    before, after = load(state), load(out)
    expected = before.probabilities(asked)
    np.testing.assert_allclose(after.probabilities(asked), expected, atol=1e-5)
    one = ("sea", "lemon")
    expected = before.probabilities(asked, one)
    np.testing.assert_allclose(after.probabilities(asked, one), expected, atol=1e-5)
    assert after.classes == before.classes
