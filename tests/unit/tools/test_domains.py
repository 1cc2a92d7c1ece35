"""The images on which settings are chosen: no category that ships, each image in one domain."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tools import domains
from tools.builtin_images import choose


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return an archive of 20 categories; the n-th of them has n + 4 images."""
    path = tmp_path / "images.zip"
    draw = np.random.default_rng(1)
    with zipfile.ZipFile(path, "w") as file:
        for category in range(20):
            for image in range(category + 4):
                content = io.BytesIO()
                pixels = draw.integers(0, 255, (40, 32, 3), np.uint8)
                Image.fromarray(pixels).save(content, "JPEG")
                file.writestr(f"top/c{category:02}/{image:03}.jpg", content.getvalue())
    return path


def test_domains_hold_the_largest_categories_that_do_not_ship(
    archive: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "styled"
    # Of the categories that do not ship (c01, c03, ..., c19) the seven largest.
    wanted = [f"c{number:02}" for number in (7, 9, 11, 13, 15, 17, 19)]
    assert domains.write(archive, folder) == sum(number + 4 for number in range(7, 20, 2))
    assert sorted(one.name for one in folder.iterdir()) == sorted(domains.STYLES)
    for domain in folder.iterdir():
        assert sorted(one.name for one in domain.iterdir()) == wanted
    assert not set(wanted) & set(choose(f"c{number:02}" for number in range(20)))
    names = [(path.parent.name, path.name) for path in folder.rglob("*.jpg")]
    assert len(names) == len(set(names)), "an image is in one domain only"
    assert {name for category, name in names if category == "c07"} == {
        f"{number:03}.jpg" for number in range(11)
    }


def test_the_same_bytes_come_at_each_call_and_photos_stay(archive: Path, tmp_path: Path) -> None:
    domains.write(archive, tmp_path / "one")
    domains.write(archive, tmp_path / "two")
    paths = sorted((tmp_path / "one").rglob("*.jpg"))
    for path in paths:
        again = tmp_path / "two" / path.relative_to(tmp_path / "one")
        assert path.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(archive) as source:
        first = Image.open(io.BytesIO(source.read("top/c19/002.jpg"))).convert("RGB")
    shown = np.asarray(Image.open(tmp_path / "one/photo/c19/002.jpg").convert("RGB"), int)
    assert np.abs(shown - np.asarray(first, int)).mean() < 8  # only JPEG changed it
    drawn = np.asarray(Image.open(tmp_path / "one/sketch/c19/003.jpg").convert("RGB"), int)
    assert np.abs(drawn - drawn.mean(axis=2, keepdims=True)).mean() < 3, "a sketch is grey"


def test_a_folder_that_exists_is_refused(
    archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["domains", str(archive), str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        domains.main()
    assert "exists; name a folder that does not exist yet" in capsys.readouterr().err
