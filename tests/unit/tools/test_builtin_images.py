"""The builder: chooses by name, rebuilds the same bytes, and notices when they differ."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from fednode.data import builtin
from tools import builtin_images


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "source.zip"
    with zipfile.ZipFile(path, "w") as target:
        for category in ("BACKGROUND_Google", "Faces", "Faces_easy", "ant", "bass", "crab"):
            for number in range(builtin_images.IMAGES_PER_CLASS + 2, 0, -1):
                content = io.BytesIO()
                colour = (number * 9 % 256, len(category) * 20, 0)
                image = Image.new("RGB", (12, 8), colour)
                image.save(content, "JPEG", comment=b"to be left out")
                target.writestr(f"set/{category}/image_{number:04d}.jpg", content.getvalue())
    return path


def test_every_second_category_by_name_is_chosen() -> None:
    names = ["b", "Zebra", "BACKGROUND_Google", "a", "Faces", "c", "Faces_easy", "d"]
    assert builtin_images.choose(names) == ["Zebra", "b", "d"]


def test_first_images_of_each_class_are_taken(archive: Path) -> None:
    files = builtin_images.build(archive)
    assert {name.split("/")[1] for name in files} == {"ant", "crab"}
    ants = sorted(name for name in files if "/ant/" in name)
    assert len(ants) == builtin_images.IMAGES_PER_CLASS
    assert ants[-1].endswith(f"image_{builtin_images.IMAGES_PER_CLASS:04d}.jpg")


def test_images_keep_their_size_and_lose_their_metadata(archive: Path) -> None:
    content = next(iter(builtin_images.build(archive).values()))
    with Image.open(io.BytesIO(content)) as image:
        assert (image.format, image.size, image.mode) == ("JPEG", (12, 8), "RGB")
        assert "comment" not in image.info


def test_building_twice_gives_the_same_bytes(archive: Path) -> None:
    assert builtin_images.build(archive) == builtin_images.build(archive)


def test_check_tells_whether_the_manifest_agrees(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(archive), "--assets", str(tmp_path / "assets")]
    assert builtin_images.main(arguments) == 0
    assert builtin_images.main([*arguments, "--check"]) == 0
    assert "agrees" in capsys.readouterr().out
    (tmp_path / "assets" / builtin.MANIFEST).write_text("", encoding="utf-8")
    assert builtin_images.main([*arguments, "--check"]) == 1


def test_foreign_images_in_the_folder_are_refused(archive: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "assets" / builtin.FOLDER / "ant" / "other.jpg"
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"")
    with pytest.raises(SystemExit, match=r"1 images below .* not part of the set"):
        builtin_images.main([str(archive), "--assets", str(tmp_path / "assets")])
