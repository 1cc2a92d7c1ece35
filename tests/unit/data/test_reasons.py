"""What is said of skipped files and of images of one colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from fednode.data import load as module
from fednode.data.base import DataSettings, ProgressFn, Split
from fednode.data.images import Cache, Verdict, examine
from fednode.data.load import load, look
from fednode.data.pixels import Window
from fednode.data.reasons import listed
from tests.unit.data.conftest import MakeFolder


def settings(root: Path, **changes: object) -> DataSettings:
    return replace(DataSettings(path=str(root), shots=4), **changes)  # type: ignore[arg-type]


def paths(split: Split) -> set[Path]:
    return {image.path for image in split.images}


def test_images_of_one_colour_and_several_frames_are_counted_and_named(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_folder({"a": 6, "b": 6})
    flat, stack = root / "a" / "000.png", root / "b" / "003.png"
    Image.new("RGB", (6, 5), (9, 9, 9)).save(flat)

    def three_frames(
        paths: Sequence[Path], window: Window, cache: Cache | None, progress: ProgressFn
    ) -> dict[Path, Verdict]:
        found = examine(paths, window, cache, progress)
        return {**found, stack: replace(found[stack], frames=30)}

    monkeypatch.setattr(module, "examine", three_frames)
    data = load(settings(root, shots=0))
    assert data.constant == (flat,)
    assert data.notes == (
        f"DICOM files with several frames: 1, such as '{stack}' (30 frames). The middle frame of "
        "each is used.",
    )
    one_colour, frames = map(str, look(settings(root, shots=0))[0])
    assert one_colour.startswith("1 image of one colour throughout, in which the model sees noth")
    assert one_colour.endswith(f"'{flat}'.")
    assert frames == data.notes[0]


def test_many_skipped_files_are_counted_and_some_named() -> None:
    skipped = [(Path(f"{at}.png"), f"damaged: fault {at}") for at in range(25)]
    skipped.append((Path("a.txt"), "not an image by its suffix (.bmp, .gif)"))
    first, second = listed(skipped, [])
    assert first.startswith("Skipped 25 files (damaged): '0.png' (fault 0), '1.png' (fault 1)")
    assert first.endswith("'19.png' (fault 19) and 5 more.")
    assert second == "Skipped 1 file (not an image by its suffix): 'a.txt'."
    (cut,) = listed([(Path("b.jpg"), "damaged: truncated (54 bytes not processed)")], [])
    assert cut == "Skipped 1 file (damaged): 'b.jpg' (truncated (54 bytes not processed))."
