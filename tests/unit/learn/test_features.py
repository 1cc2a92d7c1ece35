"""Features, tokens and pixels of images: the same bits from memory, from disk and anew."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from PIL import Image
from torch import Tensor

from fednode.clip.model import FrozenClip
from fednode.core.types import PRIVATE
from fednode.data import decode as decoding
from fednode.data.pixels import Window
from fednode.errors import DataError
from fednode.learn import features as module
from fednode.learn.cache import FILE, FeatureCache
from fednode.learn.features import EVALUATED, PIXELS, Features, Images
from fednode.learn.learner import Cancelled
from fednode.learn.prompt_module import PerImageArray, PromptModule
from fednode.learn.settings import TuningSettings
from fednode.testing.learners import never
from tests.unit.clip import tiny
from tests.unit.data.rgb import read_rgb
from tests.unit.learn.nodes import ROOM, learner_of, made, split_of, tuned

ARRAYS = ("features", "tokens", "patches", "pixels")
every_array = pytest.mark.parametrize("name", ARRAYS)


@pytest.fixture(scope="module", params=["hybrid", "plain", "large"])
def model(request: pytest.FixtureRequest) -> FrozenClip:
    """The tokens of the first two are fewer numbers than the pixels."""
    if request.param == "large":
        torch.manual_seed(0)
        return tiny.frozen(CLIP(tiny.EMBED, {**tiny.VISION, "patch_size": 2}, tiny.TEXT).eval())
    return tiny.frozen(tiny.hybrid(2) if request.param == "hybrid" else tiny.clip(2))


@pytest.fixture(scope="module")
def plain() -> FrozenClip:
    return tiny.frozen(tiny.clip(2))


@pytest.fixture(autouse=True)
def batches_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 8)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the files that are decoded from now on."""
    found: list[Path] = []

    def counted(path: Path, window: Window = None) -> Any:
        found.append(path)
        return decoding.decode(path, window=window)

    monkeypatch.setattr(module, "decode", counted)
    return found


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many images are encoded at a time from now on."""
    sizes: list[int] = []
    encode = FrozenClip.encode_raw

    def counted(one: FrozenClip, images: Tensor) -> Tensor:
        sizes.append(len(images))
        return encode(one, images)

    monkeypatch.setattr(FrozenClip, "encode_raw", counted)
    return sizes


def array_of(model: FrozenClip, one: Features, name: str) -> PerImageArray:
    if name == "patches":
        return PerImageArray(name, model.vision.patches_shape, model.vision.patches)
    return {"features": one._features, "tokens": one.tokens, "pixels": PIXELS}[name]


def values(model: FrozenClip, one: Features, name: str, files: list[Path]) -> Tensor:
    return one.values(array_of(model, one, name), files, never)


def expected(model: FrozenClip, name: str, files: list[Path]) -> Tensor:
    """Return what open_clip's own tower gives, or fednode's of tokens."""
    pixels = torch.stack([model.preprocess(read_rgb(path)) for path in files])
    visual = model.model.visual
    if name == "tokens":
        return model.vision.tokens(pixels)
    if name != "patches":
        return pixels if name == "pixels" else F.normalize(model.encode_raw(pixels), dim=-1)
    visual.output_tokens = True
    with torch.no_grad():
        _, tokens = visual(pixels)
    visual.output_tokens = False
    rows, columns = visual.grid_size
    # A hybrid has a concept token behind the patches.
    return torch.nn.functional.normalize(tokens[:, : rows * columns] @ visual.proj, dim=-1)


@every_array
def test_they_are_the_tower_s_own(model: FrozenClip, files: list[Path], name: str) -> None:
    one = made(model)
    found = values(model, one, name, files)
    found = found[:, :-1] if name == "features" else found
    torch.testing.assert_close(found, expected(model, name, files), atol=1e-5, rtol=1e-4)


def test_lengths_give_back_the_model_s_own_output(
    mini: FrozenClip, files: list[Path], tmp_path: Path
) -> None:
    with torch.inference_mode():
        wanted = mini.model.encode_image(
            torch.stack([mini.preprocess(Image.open(path)) for path in files])
        )
    for _ in range(2):  # computed, then from the cache
        features, norms = made(mini, tmp_path).of(files, never)
        assert torch.allclose(norms[:, None] * features, wanted, rtol=1e-4, atol=1e-5)
        assert torch.allclose(features.norm(dim=1), torch.ones(5), atol=1e-6)
    assert float((norms - 1.0).abs().min()) > 0.1, "else the test could not tell the two apart"


@every_array
def test_kept_and_fresh_are_the_same_bits_whatever_their_company(
    model: FrozenClip, files: list[Path], tmp_path: Path, decoded: list[Path], name: str
) -> None:
    fresh = values(model, made(model), name, files)
    alone = torch.cat([values(model, made(model), name, [path]) for path in files])
    assert torch.equal(alone, fresh)
    first = made(model, tmp_path, ROOM)
    assert torch.equal(values(model, first, name, files[::-1]), fresh.flip(0))
    assert len(decoded) == 3 * len(files)
    assert torch.equal(values(model, first, name, [*files, files[0]]), fresh[[*range(5), 0]])
    assert len(decoded) == 3 * len(files), "from memory"
    assert torch.equal(values(model, made(model, tmp_path), name, files), fresh)
    assert len(decoded) == (4 if name == "pixels" else 3) * len(files), "from disk"


def test_arrays_do_not_meet_in_the_cache_and_features_are_made_of_kept_tokens(
    model: FrozenClip, files: list[Path], tmp_path: Path, decoded: list[Path]
) -> None:
    fresh = [values(model, made(model), name, files) for name in ARRAYS]
    ones = PerImageArray("ones", (2,), lambda images: torch.ones(len(images), 2))
    values(model, made(model, tmp_path), "tokens", files)
    count = len(decoded)
    for _ in range(2):
        found = [values(model, made(model, tmp_path), name, files) for name in ARRAYS]
        assert all(map(torch.equal, found, fresh))
        assert torch.equal(made(model, tmp_path).values(ones, files, never), torch.ones(5, 2))
    if model.vision.tokens_smaller_than_pixels:
        assert len(decoded) == count + 2 * len(files), "for the pixels alone"


def test_each_content_is_encoded_once_in_full_batches(
    plain: FrozenClip, files: list[Path], tmp_path: Path, encoded: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    copy = files[0].with_name("copy.png")
    copy.write_bytes(files[0].read_bytes())
    one, two = made(plain, tmp_path), made(plain, tmp_path)
    found = one.of([*files, copy], never).features
    assert torch.equal(found[0], found[5])
    one.of(files, never)
    two.of(files, never)  # what another node put there meanwhile is taken
    assert encoded == [8]
    Image.new("RGB", (20, 20)).save(files[1])
    made(plain, tmp_path).of(files, never)
    assert encoded == [8] * 2
    monkeypatch.setattr(module, "BATCH", 2)
    found = made(plain).of([files[0], *files[2:]], never).features
    assert torch.allclose(found, two.of([files[0], *files[2:]], never).features, atol=1e-6)
    assert encoded == [8] * 2 + [2] * 2


def test_features_of_another_model_window_or_decoder_are_not_used(
    plain: FrozenClip, files: list[Path], tmp_path: Path, encoded: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    changed: list[dict[str, Any]] = [{"precision": "bfloat16"}, {"fingerprint": "another"}]
    others = [(replace(plain, **change), None) for change in changed]
    window = (0.0, 4095.0)
    for number, (other, grey) in enumerate([(plain, None), *others, (plain, window)], 1):
        for _ in range(2):
            made(other, tmp_path, window=grey).of(files, never)
            assert len(encoded) == number
    monkeypatch.setattr(decoding, "VERSION", decoding.VERSION + 1)
    made(plain, tmp_path).of(files, never)
    assert len(encoded) == 5


def test_a_window_changes_what_the_model_sees(plain: FrozenClip, tmp_path: Path) -> None:
    deep, white = tmp_path / "deep.png", tmp_path / "white.png"
    Image.fromarray(np.linspace(0, 65_535, 4096).astype(np.uint16).reshape(64, 64)).save(deep)
    Image.new("RGB", (64, 64), "white").save(white)
    narrow = made(plain, window=(0.0, 9000.0)).of([deep], never).features
    for other in (deep, white):
        assert not torch.allclose(made(plain).of([other], never).features, narrow, atol=1e-2)


@every_array
def test_memory_has_a_bound_and_is_given_back(
    plain: FrozenClip, files: list[Path], decoded: list[Path], name: str
) -> None:
    """Features are small and always kept; two of the other arrays fit."""
    size = 4 * values(plain, made(plain), name, files[:1]).numel()
    one = made(plain, limit=2 * size + size // 2)
    fits = 5 if name == "features" else 2

    def look() -> int:
        decoded.clear()
        values(plain, one, name, files)
        return len(decoded)

    assert [look(), look()] == [5, 5 - fits]
    one.keep_only(files)
    assert look() == 5 - fits
    Image.new("RGB", (21, 9), "orange").save(files[0])
    one.keep_only(files[:2])  # the first is not what it was
    assert look() == 4
    one.keep_only([])
    assert [look(), look()] == [5, 5 - fits]
    assert one._filled == sum(value.nbytes for value in one._memory.values())
    assert len(one._digests) == (0 if name == "pixels" else 5)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE features SET value = zeroblob(length(value)) WHERE rowid = 1",
        "UPDATE features SET value = substr(value, 1, 8) WHERE rowid = 1",
        "DELETE FROM features WHERE rowid = 1",
    ],
)
def test_damaged_rows_are_made_anew(
    plain: FrozenClip, files: list[Path], tmp_path: Path, decoded: list[Path], statement: str
) -> None:
    fresh = values(plain, made(plain, tmp_path), "tokens", files)
    with sqlite3.connect(tmp_path / "cache" / FILE) as rows:
        rows.execute(statement)
    rows.close()
    again = made(plain, tmp_path)
    assert torch.equal(values(plain, again, "tokens", files), fresh)
    assert len(decoded) == len(files) + 1
    assert again.notes == ()


def test_a_cache_that_is_no_database_or_cannot_be_used_costs_time_only(
    plain: FrozenClip, files: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / FILE).write_bytes(b"no database at all" * 100)
    fresh, again = made(plain), made(plain, tmp_path)
    assert torch.equal(again.of(files, never).features, fresh.of(files, never).features)
    assert "was damaged" in again.notes[0]
    file = Features(plain, FeatureCache(files[0], ROOM))
    assert torch.equal(file.of(files, never).features, fresh.of(files, never).features)
    assert "images are encoded anew at each start" in file.notes[0]
    assert fresh.notes == ()
    assert fresh.of([], never).features.shape == (0, 0)


@every_array
def test_a_changed_file_has_other_values_and_a_lost_or_damaged_one_is_a_sentence(
    plain: FrozenClip, files: list[Path], tmp_path: Path, name: str
) -> None:
    one = made(plain, tmp_path, ROOM)
    before = values(plain, one, name, files[:1])
    Image.new("RGB", (64, 65), (9, 9, 9)).save(files[0])
    assert not torch.equal(values(plain, one, name, files[:1]), before)
    files[0].unlink()
    files[1].write_bytes(b"no image")
    for at, why in ((0, "No such file"), (1, "")):
        with pytest.raises(DataError, match=rf"{at}\.png' can no longer be read: {why}"):
            values(plain, one, name, [files[at]])
    with pytest.raises(Cancelled):
        one.values(array_of(plain, one, name), files[2:3], lambda: True)


# Batches ------------------------------------------------------------------------------------------


def test_batches_carry_features_and_patches_of_the_same_images(
    model: FrozenClip, files: list[Path]
) -> None:
    one, patches = made(model), array_of(model, made(model), "patches")
    count = EVALUATED + 3
    many = split_of([files[at % 5] for at in range(count)])
    asked = PromptModule(model, TuningSettings())
    asked.per_image = patches
    images = Images(one, asked)
    shown = list(images.batches(many, never))
    assert [len(batch.targets) for batch in shown] == [EVALUATED, 3]
    wanted = one.of([image.path for image in many.images], never).features
    assert torch.equal(torch.cat([batch.image_features for batch in shown]), wanted)
    known = values(model, one, "patches", files)[torch.arange(count) % 5]
    assert torch.equal(torch.cat([batch.per_image for batch in shown]), known)
    index = torch.tensor([7, 0, 3])
    found = images.reader(many, never)(index)
    assert found.targets.tolist() == [1, 0, 1]
    assert torch.equal(found.image_features, wanted[index])
    assert torch.equal(found.per_image, known[index])


def test_a_module_with_visual_prompts_gets_tokens_or_pixels_whichever_is_smaller(
    model: FrozenClip, files: list[Path]
) -> None:
    asked = PromptModule(model, TuningSettings(context_length=2))
    asked.uses_image_encoder = True
    seen = next(Images(made(model), asked).batches(split_of(files), never))
    name = "tokens" if model.vision.tokens_smaller_than_pixels else "pixels"
    assert torch.equal(seen.images, values(model, made(model), name, files))
    assert (name == "pixels") == (model.vision.num_tokens > 100)


@pytest.mark.parametrize(
    ("model", "policy"),
    [("hybrid", "feddpt"), ("large", "feddpt"), ("plain", "plan"), ("hybrid", "fedotp")],
    indirect=["model"],
)
def test_tuning_gives_equal_bits_with_and_without_the_cache(
    model: FrozenClip, files: list[Path], tmp_path: Path, policy: str
) -> None:
    def outcome(folder: Path | None, **set_: Any) -> Any:
        report = tuned(learner_of(model, files, policy, folder, **set_))
        private = report.carry.get(PRIVATE + "local", np.zeros(0)).tolist()
        return report.tensors, private, report.metrics

    wanted = outcome(None, pixels_mb=0)
    assert wanted == outcome(None)
    assert wanted == outcome(tmp_path)
    assert wanted == outcome(tmp_path, pixels_mb=0)
    assert set(wanted[2]) > {"loss", "validation"}


@pytest.mark.parametrize("size", [(60_000, 1), (1, 60_000), (8_000, 30)])
def test_a_long_and_narrow_image_takes_little_memory_and_looks_as_its_centre(
    plain: FrozenClip, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    sizes = []
    resize = Image.Image.resize

    def noted(self: Image.Image, wanted: tuple[int, int], *rest: Any, **more: Any) -> Image.Image:
        sizes.append(wanted)
        return resize(self, wanted, *rest, **more)

    monkeypatch.setattr(Image.Image, "resize", noted)
    pixels = plain.preprocess(Image.linear_gradient("L").resize(size).convert("RGB"))
    assert sizes[0] == size
    assert max(wide * high for wide, high in sizes[1:]) < 40 * pixels.shape[-1] ** 2
