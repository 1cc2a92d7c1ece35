"""Sentences on skipped files, on images of one colour and on files with several frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.data import load as module
from fednode.data.base import DataSettings
from fednode.data.images import Verdict
from fednode.data.load import load
from fednode.data.skip_report import skip_report
from tests.unit.data.conftest import MakeFolder


def test_images_of_one_colour_and_several_frames_are_counted_and_named(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_folder({"a": 6, "b": 6})
    odd = {
        root / "a" / "000.png": Verdict(constant=True, digest="0"),
        root / "b" / "003.png": Verdict(frames=30, digest="1"),
    }
    monkeypatch.setattr(
        module,
        "examine",
        lambda paths, *_: {path: Verdict(digest=path.name) for path in paths} | odd,
    )
    settings = DataSettings(path=str(root), shots=0)
    assert load(settings).notes[:2] == (
        f"DICOM files with several frames: 1, such as '{root}/b/003.png' (30 frames). The middle "
        "frame of each is used.",
        "Images of one colour throughout, in which the model sees nothing: 1, such as "
        f"'{root}/a/000.png'. data.window sets which values of a grey image become black and "
        "white.",
    )


def test_many_skipped_files_are_counted_and_some_named() -> None:
    skipped = [(Path(f"{at}.png"), f"damaged: fault {at}") for at in range(25)]
    skipped.append((Path("a.txt"), "not an image by its suffix (.bmp, .gif)"))
    first, second = skip_report(skipped)
    assert first.startswith("Skipped 25 files (damaged): '0.png' (fault 0), '1.png' (fault 1)")
    assert first.endswith("'19.png' (fault 19) and 5 more.")
    assert second == "Skipped 1 file (not an image by its suffix): 'a.txt'."
    (cut,) = skip_report([(Path("b.jpg"), "damaged: truncated (54 bytes not processed)")])
    assert cut == "Skipped 1 file (damaged): 'b.jpg' (truncated (54 bytes not processed))."
