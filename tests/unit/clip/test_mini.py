"""The embedded model's files: written, read back, and everything that can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from open_clip.transformer import VisionTransformer
from safetensors.torch import load_file, save_file

from fednode.clip import mini
from fednode.clip import model as clip
from fednode.clip.load import LoadedModel, byte_pairs
from fednode.clip.model import FrozenClip
from fednode.clip.settings import ModelSettings
from fednode.errors import ModelError
from tests.unit.clip import tiny

ROWS = torch.tensor([49407, 5, 9, 49406])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.save(tmp_path, tiny.hybrid(1), ROWS)
    return tmp_path


def loaded(folder: Path) -> FrozenClip:
    model, seen = mini.expand(folder)
    found = LoadedModel(model, "tiny", byte_pairs(), seen=seen)
    return clip.freeze(found, ModelSettings(device="cpu"))


def test_what_was_saved_is_read_back_in_float16(folder: Path) -> None:
    model, seen = mini.expand(folder)
    assert seen == set(ROWS.tolist())
    visual: Any = model.visual
    assert tiny.HYBRID["preprocess_cfg"].items() <= visual.preprocess_cfg.items()
    assert type(model.visual) is VisionTransformer
    wanted = tiny.hybrid(1).state_dict()
    table = wanted.pop(mini.EMBEDDING)
    found = dict(model.state_dict())
    shown = found.pop(mini.EMBEDDING)
    assert torch.equal(shown[ROWS], table[ROWS].half().float())
    assert torch.equal(shown[7], table[ROWS].mean(dim=0).half().float())
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], one.half().float()) for name, one in wanted.items())


def change(folder: Path, **keys: Any) -> None:
    """Change keys of a folder's config.json; None: leave the key out."""
    config = {**json.loads((folder / "config.json").read_text()), **keys}
    written = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(written))


TRUNK = tiny.HYBRID["trunk_cfg"]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"trunk_cfg": None}, r"a damaged one \(KeyError: 'trunk_cfg'\): install fednode again"),
        ({"trunk_cfg": {**TRUNK, "last": [[1, 3]]}}, "a damaged one .*out of range"),
        ({"trunk_cfg": {**TRUNK, "last": TRUNK["last"][:1]}}, "of trunk_cfg multiply to 8"),
        ({"trunk_cfg": {**TRUNK, "head": 25}}, "a damaged one .*size mismatch"),
        ({"embed_dim": None}, "a damaged one .*'embed_dim'"),
        ({"sha256": "0" * 64}, "the SHA-256 of model.safetensors is not that of config.json"),
    ],
)
def test_a_configuration_at_fault_is_a_sentence(
    folder: Path, keys: dict[str, Any], sentence: str
) -> None:
    change(folder, **keys)
    with pytest.raises(ModelError, match=sentence) as fault:
        mini.expand(folder)
    assert "\n" not in str(fault.value)
    assert str(folder) in str(fault.value)


def test_weights_that_are_missing_are_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["token_embedding.fill"]
    save_file(tensors, folder / "model.safetensors")
    change(folder, sha256=None)
    with pytest.raises(ModelError, match=r"KeyError: .token_embedding\.fill"):
        mini.expand(folder)
