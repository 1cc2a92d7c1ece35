"""Pictures are redrawn, always in the same way, and their features are computed once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fednode.errors import DataError
from tests.unit.tools.pretrain import world as world
from tools.pretrain import sources, store, styles, teachers
from tools.pretrain.styles import Chance, Picture
from tools.pretrain.wordnet import WordNet, read_wordnet

SIDE = 48
KEEPING: dict[str, Callable[[Picture, Chance], Picture]] = {
    "recolour": styles.recolour,
    "thin lines": styles._thin_lines,
    "soft lines": styles._soft_lines,
    "pencil": styles._pencil,
    "ink": styles._ink,
    "sketch": styles.sketch,
    "cartoon": styles.cartoon,
    "paint": lambda image, chance: styles.paint(image, chance, world.photo(5, (40, 60))),
}


def icon() -> Picture:
    """Return a red square [64, 64, 4] on a transparent ground."""
    made = np.zeros((64, 64, 4), np.uint8)
    made[16:48, 16:48] = (220, 30, 30, 255)
    return made


SQUARE: dict[str, Callable[[Chance], Picture]] = {
    "crop": lambda chance: styles.crop(world.photo(), chance, SIDE, 0.3),
    "line": lambda chance: styles.draw_strokes(world.STROKES, chance, SIDE, fill=False),
    "fill": lambda chance: styles.draw_strokes(world.STROKES, chance, SIDE, fill=True),
    "flat": lambda chance: styles.place_icon(icon(), chance, SIDE),
    "trace": lambda chance: styles.trace_icon(icon(), chance, SIDE),
}


@pytest.mark.parametrize("name", KEEPING)
def test_a_style_keeps_the_shape_and_hangs_on_the_seed_alone(name: str) -> None:
    image = world.photo()
    before = image.copy()
    first, again, other = (KEEPING[name](image, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.shape == image.shape
    assert first.dtype == np.uint8
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, image)
    assert np.array_equal(image, before)


@pytest.mark.parametrize("name", SQUARE)
def test_what_is_drawn_is_square_and_hangs_on_the_seed_alone(name: str) -> None:
    first, again, other = (SQUARE[name](np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.shape == (SIDE, SIDE, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.std() > 1


@pytest.fixture
def words(tmp_path: Path) -> WordNet:
    return read_wordnet(world.write_wordnet(tmp_path / "wordnet"))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("dog", "dog"),
        ("dog-face", "dog"),
        ("domestic-dog", "domestic dog"),
        ("dogs", "dog"),
        ("car-with-smoke", "car"),
        ("man-dancing", "man"),
        ("person-in-bed", "person"),
        ("man-light-skin-tone", ""),
        ("dog-dark", ""),
        ("entity", ""),
        ("twisted-thing", ""),
    ],
)
def test_an_icon_s_name_gives_a_noun_or_nothing(words: WordNet, name: str, word: str) -> None:
    assert sources.icon_word(name, words) == word


def test_sources_list_what_is_there(words: WordNet, tmp_path: Path) -> None:
    folder = world.write_pictures(tmp_path / "work")
    icons = sources.icons(folder / "icons", words)
    assert [(one.key, one.word) for one in icons] == [("made/car", "car"), ("made/dog-face", "dog")]
    drawn = sources.strokes(folder / "quick")
    assert [(one.key, one.word) for one in drawn] == [("dog/0", "dog"), ("dog/1", "dog")]
    assert [one.key for one in sources.photos(folder / "coco")] == ["0.jpg", "1.jpg"]
    assert store.views(drawn) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_sources_without_pictures_are_a_sentence(words: WordNet, tmp_path: Path) -> None:
    for read in (sources.photos, sources.strokes, lambda folder: sources.icons(folder, words)):
        with pytest.raises(DataError, match="holds no"):
            read(tmp_path / "nothing")


def test_a_view_repeats_bit_for_bit(words: WordNet, tmp_path: Path) -> None:
    folder = world.write_pictures(tmp_path / "work")
    palette = sources.photos(folder / "coco")
    every = [palette, sources.strokes(folder / "quick"), sources.icons(folder / "icons", words)]
    for shown in every:
        made = [
            [sources.view(sources.read(shown[0]), shown[0], number, palette) for number in order]
            for order in (range(len(shown[0].views)), reversed(range(len(shown[0].views))))
        ]
        for first, again in zip(made[0], reversed(made[1]), strict=True):
            assert first.shape == (sources.SIDE, sources.SIDE, 3)
            assert first.dtype == np.uint8
            assert np.array_equal(first, again)
        assert len({one.tobytes() for one in made[0]}) == len(made[0])


def test_an_icon_is_rendered_with_its_transparency(words: WordNet, tmp_path: Path) -> None:
    folder = world.write_pictures(tmp_path / "work")
    found = sources.read(sources.icons(folder / "icons", words)[0])
    assert found.shape == (sources.ICON_SIZE, sources.ICON_SIZE, 4)
    assert found[128, 128].tolist() == [0xDD, 0x33, 0x33, 255]
    assert found[2, 2, 3] == 0


def test_a_whole_view_is_the_middle_square() -> None:
    image = np.zeros((100, 300, 3), np.uint8)
    image[:, 100:200] = 200
    assert (sources.whole(image)[:, 4:-4] > 190).all()


def test_pieces_that_are_missing_are_computed_again_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teachers, "trunk", world.trunk)
    monkeypatch.setattr(store, "PIECE", 3)
    shown = sources.strokes(world.write_pictures(tmp_path / "work") / "quick")
    shown = [
        *shown,
        *(
            sources.Source(f"dog/{n}", "dog", one.views, one.place)
            for n, one in enumerate(shown, 2)
        ),
    ]
    folder = tmp_path / "features"
    store.compute("quick", shown, [], folder, processes=2)
    grid, known = store.load("quick", 8, folder)
    assert grid.dtype == known.dtype == torch.float16
    assert known.shape == (8, 1280)
    files = sorted(folder.iterdir())
    assert len(files) == 3
    before = [one.stat().st_mtime_ns for one in files]
    files[1].unlink()
    with pytest.raises(DataError, match=r"quick-00001.npz is missing: run the stage views"):
        store.load("quick", 8, folder)
    store.compute("quick", shown, [], folder, processes=1)
    again = store.load("quick", 8, folder)
    assert torch.equal(again[0], grid)
    assert torch.equal(again[1], known)
    after = [one.stat().st_mtime_ns for one in files]
    assert (after[0], after[2]) == (before[0], before[2])
    assert all(len(torch.unique(part, dim=0)) == 8 for part in (grid, known))


def test_a_feature_is_the_trunk_s_of_that_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teachers, "trunk", world.trunk)
    shown = sources.strokes(world.write_pictures(tmp_path / "work") / "quick")
    store.compute("quick", shown, [], tmp_path / "features", processes=1)
    grid, known = store.load("quick", 4, tmp_path / "features")
    picture = sources.view(json.loads(shown[1].place)["drawing"], shown[1], 1, [])
    exact = world.trunk(8).double()
    pixels = (torch.from_numpy(picture).double() / 255 - 0.5) / 0.5
    base = exact.base(pixels.permute(2, 0, 1)[None])
    torch.testing.assert_close(grid[3].double(), base[0], rtol=2e-3, atol=2e-3)
    wanted = exact.known(base).mean((2, 3))[0]
    torch.testing.assert_close(known[3].double(), wanted, rtol=2e-3, atol=2e-3)
