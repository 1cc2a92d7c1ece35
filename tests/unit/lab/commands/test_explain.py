"""`fednode explain`: words and pictures of tuned prompts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fednode.lab.commands.explain import TITLE_MAX, _square, draw_maps
from tests.unit.commands.run import Fednode


@pytest.fixture(autouse=True)
def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide four places of an image in place of 64, which takes seconds an image."""
    monkeypatch.setattr("fednode.learn.explain.GRID", 2)


def test_explain_prints_words_and_draws_pictures(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    state, images = tuned / "state", tuned / "images"
    assert fednode("explain", "words", "--state", state, "--top", "2", "--format", "json") == 0
    (rows,) = json.loads(fednode.out).values()
    assert {len(row) for row in rows} == {2}
    assert all(row[0]["distance"] <= row[1]["distance"] for row in rows)
    assert fednode("explain", "words", "--state", state) == 0
    assert "nearest" in fednode.out
    lemon, picture = images / "lemon" / "0.png", tmp_path / "maps.png"
    assert fednode("explain", "maps", lemon, "--state", state, "--to", picture) == 0
    with Image.open(picture) as drawn:
        assert drawn.width > 2 * drawn.height  # one row of three
    assert "0.png: predicted: " in fednode.out
    assert ", true: lemon\n" in fednode.out
    given = ("explain", "maps", lemon, "--class", "sea", "--state", state, "--to", picture)
    assert fednode(*given) == 0
    assert "0.png: looked for: sea, true: lemon\n" in fednode.out
    elsewhere = tmp_path / "photo.png"
    shutil.copy(lemon, elsewhere)
    assert fednode("explain", "maps", elsewhere, "--state", state, "--to", picture) == 0
    assert "true:" not in fednode.out


def test_what_cannot_be_explained_is_said(fednode: Fednode, tuned: Path, tmp_path: Path) -> None:
    state, lemon = tuned / "state", tuned / "images" / "lemon"
    assert fednode("explain", "words", "--state", state, "--top", "0") == 2
    assert "--top is 0" in fednode.err
    assert fednode("explain", "maps", *[lemon] * 3, "--state", state) == 3
    assert "18 images were given; a picture shows 1 to 12" in fednode.err
    nowhere = tmp_path / "none" / "maps.png"
    assert fednode("explain", "maps", lemon / "0.png", "--state", state, "--to", nowhere) == 4
    assert "cannot be written" in fednode.err


def test_a_picture_shows_the_central_square_beside_its_maps_under_a_short_title(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    pixels = np.zeros((30, 90, 3), dtype=np.uint8)
    pixels[:, 30:60] = 200
    image = tmp_path / "wide.png"
    Image.fromarray(pixels).save(image)
    square = _square(image, None)
    assert square.shape == (30, 30, 3)
    assert (square == 200).all()
    maps = np.zeros((2, 3, 3), dtype=np.float32)
    titles = ["cat\nwas dog", "x" * 100]
    draw_maps([image, image], titles, maps, maps + 1, tmp_path / "maps.svg")
    drawn = (tmp_path / "maps.svg").read_text()
    for words in ("cat", "was dog", "zero-shot", "tuned"):
        assert f"<!-- {words} -->" in drawn
    assert f"<!-- {'x' * (TITLE_MAX + 1)}" not in drawn
