"""Policies with visual prompts get kept tokens: the same bits from memory, from disk and anew."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch
from open_clip.model import CLIP
from PIL import Image
from torch import Tensor

from fednode.clip.model import FrozenClip
from fednode.core.types import Job, Tensors
from fednode.data import decode as decoding
from fednode.data.base import Image as Labelled
from fednode.data.base import NodeData, Split
from fednode.data.pixels import Window
from fednode.errors import DataError
from fednode.learn import features as module
from fednode.learn.cache import FILE, FeatureCache
from fednode.learn.features import Features
from fednode.learn.images import Images
from fednode.learn.learner import Cancelled
from fednode.learn.prompt_module import PromptModule
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.policies.feddpt import FedDPTConfig, FedDPTPrompts
from fednode.policies.plan import PlanConfig
from fednode.policies.plan import PlanPrompts as Plan
from tests.unit.clip import tiny
from tests.unit.data.rgb import read_rgb

CLASSES = ("lemon", "sea")
ROOM = 10**8


@pytest.fixture(scope="module", params=["hybrid", "plain"])
def model(request: pytest.FixtureRequest) -> FrozenClip:
    """Both have fewer numbers in their tokens than in their pixels."""
    return tiny.frozen(tiny.hybrid(2) if request.param == "hybrid" else tiny.clip(2))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the files that are decoded from now on."""
    found: list[Path] = []

    def counted(path: Path, window: Window = None) -> Any:
        found.append(path)
        return decoding.decode(path, window=window)

    monkeypatch.setattr(module, "decode", counted)
    return found


def never() -> bool:
    return False


def made(model: FrozenClip, folder: Path | None = None, limit: int = 0) -> Features:
    """Return features as of a new start."""
    one = Features(model, None if folder is None else FeatureCache(folder / "cache", ROOM))
    one.keep_pixels(limit)
    return one


def tokens(one: Features, files: list[Path]) -> Tensor:
    return one.values(one.tokens, files, never)


def test_they_are_the_tower_s_own(model: FrozenClip, files: list[Path]) -> None:
    found = tokens(made(model), files)
    pixels = torch.stack([model.preprocess(read_rgb(path)) for path in files])
    assert found.shape == (5, model.vision.num_tokens, model.vision.width)
    torch.testing.assert_close(found, model.vision.tokens(pixels))


def test_kept_and_fresh_tokens_are_the_same_bits(
    model: FrozenClip, files: list[Path], tmp_path: Path, decoded: list[Path]
) -> None:
    fresh = tokens(made(model), files)
    alone = torch.cat([tokens(made(model), [path]) for path in files])
    assert torch.equal(alone, fresh)
    first = made(model, tmp_path, ROOM)
    assert torch.equal(tokens(first, files[::-1]), fresh.flip(0))
    assert len(decoded) == 3 * len(files)
    assert torch.equal(tokens(first, files), fresh)  # from memory
    assert torch.equal(tokens(made(model, tmp_path), files), fresh)  # from disk
    assert len(decoded) == 3 * len(files)


def test_features_made_of_kept_tokens_are_the_same_bits(
    model: FrozenClip, files: list[Path], tmp_path: Path, decoded: list[Path]
) -> None:
    wanted = made(model).of(files, never).features
    tokens(made(model, tmp_path), files)
    count = len(decoded)
    assert torch.equal(made(model, tmp_path).of(files, never).features, wanted)
    assert len(decoded) == count
    pixels = torch.stack([model.preprocess(read_rgb(path)) for path in files])
    assert (wanted - model.encode_images(pixels)).abs().max() < 1e-5


def test_memory_has_a_bound(model: FrozenClip, files: list[Path], decoded: list[Path]) -> None:
    size = 4 * model.vision.num_tokens * model.vision.width
    one = made(model, limit=2 * size + size // 2)
    first = tokens(one, files)
    assert torch.equal(tokens(one, files), first)
    assert len(decoded) == 2 * len(files) - 2


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damaged_rows_are_made_anew(
    model: FrozenClip, files: list[Path], tmp_path: Path, decoded: list[Path], damage: str
) -> None:
    fresh = tokens(made(model, tmp_path), files)
    statement = {
        "flip": "UPDATE features SET value = zeroblob(length(value)) WHERE rowid = 1",
        "cut": "UPDATE features SET value = substr(value, 1, 8) WHERE rowid = 1",
        "gone": "DELETE FROM features WHERE rowid = 1",
    }[damage]
    with sqlite3.connect(tmp_path / "cache" / FILE) as rows:
        rows.execute(statement)
    rows.close()
    again = made(model, tmp_path)
    assert torch.equal(tokens(again, files), fresh)
    assert len(decoded) == len(files) + 1
    assert again.notes == ()


def test_a_cache_that_is_no_database_costs_time_only(
    model: FrozenClip, files: list[Path], tmp_path: Path
) -> None:
    cache = FeatureCache(tmp_path / "cache", ROOM)
    fresh = tokens(Features(model, cache), files)
    cache.close()
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(b"no database at all" * 100)
    again = made(model, tmp_path)
    assert torch.equal(tokens(again, files), fresh)
    assert "was damaged" in again.notes[0]


def test_a_changed_file_has_other_tokens_and_a_lost_one_is_a_sentence(
    model: FrozenClip, files: list[Path], tmp_path: Path
) -> None:
    one = made(model, tmp_path, ROOM)
    before = tokens(one, files[:1])
    Image.new("RGB", (64, 65), (9, 9, 9)).save(files[0])
    assert not torch.equal(tokens(one, files[:1]), before)
    files[0].unlink()
    with pytest.raises(DataError, match=r"0\.png' can no longer be read"):
        tokens(one, files[:1])
    with pytest.raises(Cancelled):
        one.values(one.tokens, files[1:2], lambda: True)


def split(files: list[Path]) -> Split:
    return Split(CLASSES, tuple(Labelled(path, at % 2) for at, path in enumerate(files)))


@pytest.mark.parametrize("policy", ["feddpt", "plan"])
def test_tuning_gives_equal_bits_with_and_without_the_cache(
    model: FrozenClip, files: list[Path], tmp_path: Path, policy: str
) -> None:
    none = Split(CLASSES, ())
    data = NodeData(train=split(files), validation=split(files[:2]), own=none, base=None, new=None)

    def tuned(folder: Path | None, **set_: Any) -> Tensors:
        tuning = TuningSettings(batch_size=2, epochs=2, context_length=2, lr=0.1, **set_)
        one: Any = (
            FedDPTPrompts(model, tuning, FedDPTConfig(domains=("art", "photo")))
            if policy == "feddpt"
            else Plan(model, tuning, PlanConfig(reduction=8))
        )
        cache = None if folder is None else FeatureCache(folder, ROOM)
        learner = TorchLearner(model, one, data, tuning, Features(model, cache))
        job = Job(round=1, stage="prompts", tensors=learner.initial(1), seed=5, rounds=3)
        return learner.tune(job, never, lambda _: None).tensors

    wanted = tuned(None, pixels_mb=0)
    assert wanted == tuned(None)
    assert wanted == tuned(tmp_path / "one")
    assert wanted == tuned(tmp_path / "one", pixels_mb=0)


def visual(model: FrozenClip) -> PromptModule:
    module = PromptModule(model, TuningSettings(context_length=2))
    module.uses_image_encoder = True
    return module


def test_where_tokens_are_more_numbers_pixels_are_kept(files: list[Path]) -> None:
    torch.manual_seed(0)
    large = tiny.frozen(CLIP(tiny.EMBED, {**tiny.VISION, "patch_size": 2}, tiny.TEXT).eval())
    assert not large.vision.tokens_smaller_than_pixels
    seen = next(Images(made(large), visual(large)).batches(split(files), never))
    assert seen.images.shape == (5, 3, 32, 32)
    small = tiny.frozen(tiny.clip())
    seen = next(Images(made(small), visual(small)).batches(split(files), never))
    assert seen.images.shape == (5, 5, 32)
