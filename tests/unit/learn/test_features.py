"""Image features are encoded once, and a damaged cache costs nothing but time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fednode.clip.model import FrozenClip
from fednode.data import decode
from fednode.errors import DataError
from fednode.learn import features as module
from fednode.learn.cache import FeatureCache
from fednode.learn.features import PIXELS, Features
from fednode.learn.learner import Cancelled


class Counting:
    """Count the images that a backbone encodes."""

    def __init__(self, backbone: FrozenClip) -> None:
        self.images = 0
        self._encode = backbone.encode_raw
        self.fingerprint, self.precision = backbone.fingerprint, backbone.precision
        self.preprocess, self.device = backbone.preprocess, backbone.device
        self.vision = backbone.vision

    def encode_raw(self, images: torch.Tensor) -> torch.Tensor:
        self.images += len(images)
        return self._encode(images)


@pytest.fixture
def counting(mini: FrozenClip) -> Counting:
    return Counting(mini)


def of(features: Features, paths: Sequence[Path]) -> torch.Tensor:
    return features.of(paths, lambda: False).features


def make(counting: Counting, folder: Path | None = None) -> Features:
    """Return features as of a new start; with a folder, on the cache there."""
    cache = None if folder is None else FeatureCache(folder, 10_000_000)
    return Features(counting, cache)  # type: ignore[arg-type]


def test_they_equal_the_models_own_in_the_order_asked(mini: FrozenClip, paths: list[Path]) -> None:
    found = of(Features(mini), [paths[2], paths[0]])
    with torch.inference_mode():
        pixels = torch.stack([mini.preprocess(Image.open(paths[at])) for at in (2, 0)])
        wanted = mini.model.encode_image(pixels, normalize=True)
    assert (found - wanted).abs().max() < 1e-5  # convolutions are fused here and not there


def test_lengths_give_back_the_model_s_own_output(
    mini: FrozenClip, paths: list[Path], tmp_path: Path
) -> None:
    cache = FeatureCache(tmp_path / "cache", 10_000_000)
    with torch.inference_mode():
        wanted = mini.model.encode_image(
            torch.stack([mini.preprocess(Image.open(path)) for path in paths])
        )
    for start in (Features(mini, cache), Features(mini, cache)):  # computed, then from the cache
        features, norms = start.of(paths, lambda: False)
        assert torch.allclose(norms[:, None] * features, wanted, rtol=1e-4, atol=1e-5)
        assert torch.allclose(features.norm(dim=1), torch.ones(3), atol=1e-6)
    assert float((norms - 1.0).abs().min()) > 0.1, "else the test could not tell the two apart"


def test_each_content_is_encoded_once(counting: Counting, paths: list[Path]) -> None:
    features = make(counting)
    copy = paths[0].with_name("copy.png")
    copy.write_bytes(paths[0].read_bytes())
    found = of(features, [*paths, copy])
    assert counting.images == module.BATCH
    assert torch.equal(found[0], found[3])
    of(features, paths)
    assert counting.images == module.BATCH


def test_the_cache_serves_the_next_start_and_the_next_node(
    counting: Counting, paths: list[Path], tmp_path: Path
) -> None:
    first = of(make(counting, tmp_path / "cache"), paths)
    second = of(make(counting, tmp_path / "cache"), paths)
    assert counting.images == module.BATCH  # three, filled up to a batch
    assert torch.equal(first, second)


def test_an_image_s_features_do_not_hang_on_its_company(
    mini: FrozenClip, paths: list[Path]
) -> None:
    whole = of(Features(mini), paths)
    for at, path in enumerate(paths):
        assert torch.equal(of(Features(mini), [path])[0], whole[at])
    assert torch.equal(of(Features(mini), paths[::-1]), whole.flip(0))


def test_what_another_node_put_there_meanwhile_is_taken(
    counting: Counting, paths: list[Path], tmp_path: Path
) -> None:
    one, two = (make(counting, tmp_path / "cache") for _ in range(2))
    of(one, paths[:2])
    encoded = counting.images
    of(two, paths[:2])
    assert counting.images == encoded


def test_changed_content_is_encoded_anew(
    counting: Counting, paths: list[Path], tmp_path: Path
) -> None:
    of(make(counting, tmp_path / "cache"), paths)
    Image.new("RGB", (20, 20)).save(paths[1])
    of(make(counting, tmp_path / "cache"), paths)
    assert counting.images == 2 * module.BATCH


@pytest.mark.parametrize("change", [{"precision": "bfloat16"}, {"fingerprint": "another"}])
def test_features_of_another_model_are_not_used(
    mini: FrozenClip, counting: Counting, paths: list[Path], tmp_path: Path, change: dict[str, str]
) -> None:
    cache = FeatureCache(tmp_path / "cache", 10_000_000)
    of(Features(replace(mini, **change), cache), paths)  # type: ignore[arg-type]
    of(make(counting, tmp_path / "cache"), paths)
    assert counting.images == module.BATCH


def test_features_of_another_window_or_decoder_are_not_used(
    counting: Counting, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, window = FeatureCache(tmp_path / "cache", 10_000_000), (0.0, 4095.0)
    of(make(counting, tmp_path / "cache"), paths)
    encoded = counting.images
    of(Features(counting, cache, window), paths)  # type: ignore[arg-type]
    assert counting.images == 2 * encoded
    of(Features(counting, cache, window), paths)  # type: ignore[arg-type]
    assert counting.images == 2 * encoded
    monkeypatch.setattr(decode, "VERSION", decode.VERSION + 1)
    of(Features(counting, cache, window), paths)  # type: ignore[arg-type]
    assert counting.images == 3 * encoded


def test_a_window_changes_what_the_model_sees(mini: FrozenClip, tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.linspace(0, 65_535, 4096).astype(np.uint16).reshape(64, 64)).save(path)
    auto, narrow = (of(Features(mini, None, one), [path]) for one in (None, (0.0, 9000.0)))
    assert not torch.allclose(auto, narrow, atol=1e-2)
    assert not torch.allclose(auto, of(Features(mini), [_white(tmp_path)]), atol=1e-2)


def _white(folder: Path) -> Path:
    Image.new("RGB", (64, 64), "white").save(folder / "white.png")
    return folder / "white.png"


def test_a_cache_that_cannot_be_used_costs_only_itself(
    counting: Counting, paths: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    features = make(counting, tmp_path / "file")
    assert torch.equal(of(features, paths), of(make(counting), paths))
    assert "images are encoded anew at each start" in features.notes[0]
    assert make(counting).notes == ()


def test_many_images_go_through_in_batches(
    counting: Counting, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = of(make(counting), paths)
    monkeypatch.setattr(module, "BATCH", 2)
    assert (of(make(counting), paths) - whole).abs().max() < 1e-6


def test_cancelling_stops_between_batches(counting: Counting, paths: list[Path]) -> None:
    with pytest.raises(Cancelled):
        make(counting).of(paths, lambda: True)
    assert counting.images == 0


def test_a_file_that_is_gone_is_named(counting: Counting, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.png' can no longer be read: No such file"):
        of(make(counting), [tmp_path / "gone.png"])


def test_a_file_damaged_since_is_named(counting: Counting, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"bad\.png' can no longer be read"):
        of(make(counting), [tmp_path / "bad.png"])


def test_no_images_are_no_features(counting: Counting) -> None:
    assert of(make(counting), []).shape == (0, 0)


def test_what_is_known_of_files_that_are_gone_is_given_back(
    counting: Counting, paths: list[Path]
) -> None:
    features = make(counting)
    features.keep_pixels(1 << 30)

    def look() -> None:
        of(features, paths)
        features.values(PIXELS, paths, lambda: False)

    def held() -> tuple[int, int]:
        sizes = [value.nbytes for value in features._memory.values()]
        assert features._filled == sum(sizes)
        return len(sizes), len(features._digests)

    look()
    assert held() == (2 * len(paths), len(paths))
    features.keep_only(paths)
    assert held() == (2 * len(paths), len(paths))
    Image.new("RGB", (21, 9), "orange").save(paths[0])
    features.keep_only(paths)
    assert held() == (2 * len(paths) - 2, len(paths) - 1)
    look()
    assert held() == (2 * len(paths), len(paths))
    features.keep_only(paths[:1])
    assert held() == (2, 1)
    features.keep_only([])
    assert held() == (0, 0)


@pytest.mark.parametrize("size", [(60_000, 1), (1, 60_000), (20_000, 2), (8_000, 30)])
def test_a_long_and_narrow_image_takes_little_memory_and_looks_as_its_centre(
    mini: FrozenClip, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    sizes = []
    resize = Image.Image.resize

    def noted(self: Image.Image, wanted: tuple[int, int], *rest: Any, **more: Any) -> Image.Image:
        sizes.append(wanted)
        return resize(self, wanted, *rest, **more)

    monkeypatch.setattr(Image.Image, "resize", noted)
    pixels = mini.preprocess(Image.linear_gradient("L").resize(size).convert("RGB"))
    assert sizes[0] == size
    assert max(wide * high for wide, high in sizes[1:]) < 40 * pixels.shape[-1] ** 2
