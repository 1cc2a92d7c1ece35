"""`fednode eval` and `predict`, and what imported prompts are measured on.

The images are coloured squares of two classes, made here; the model is the one that ships.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fednode as package
from fednode.api import Prompts
from fednode.app.state_dir import recall, remember
from tests.unit.commands.run import Fednode
from tests.unit.commands.tuned import COLOURS


def test_predict_names_what_images_show(fednode: Fednode, tuned: Path) -> None:
    images = [tuned / "images" / name / "5.png" for name in COLOURS]
    assert fednode("predict", "--state", tuned / "state", "--format", "json", *images) == 0
    rows = [json.loads(line) for line in fednode.out.splitlines()]
    assert [max(row["classes"], key=row["classes"].get) for row in rows] == list(COLOURS)
    assert all(sum(row["classes"].values()) == pytest.approx(1, abs=1e-4) for row in rows)
    assert fednode("predict", "--state", tuned / "state", "--top", "1", images[0]) == 0
    assert fednode.out.startswith(f"{images[0]}: lemon ")
    words = ("--classes", "dog, tree,house", "--format", "json", images[1])
    assert fednode("predict", "--state", tuned / "state", *words) == 0
    assert set(json.loads(fednode.out)["classes"]) == {"dog", "tree", "house"}


def test_predict_goes_on_after_a_damaged_image_and_names_one_of_one_colour(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    """Deep greys are no single colour."""
    shutil.copytree(tuned / "images", tmp_path / "some")
    damaged = tmp_path / "some" / "lemon" / "2.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    flat, deep = tmp_path / "some" / "flat.png", tmp_path / "some" / "deep.png"
    Image.fromarray(np.full((8, 8), 700, np.uint16)).save(flat)
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 900).save(deep)
    words = ("predict", "--state", tuned / "state", tmp_path / "some")
    assert fednode(*words) == 3
    assert len(fednode.out.splitlines()) == 13
    assert f"'{flat}' has one colour throughout" in fednode.err
    assert str(deep) not in fednode.err
    (line,) = [one for one in fednode.err.splitlines() if str(damaged) in one]
    assert line.startswith(f"fednode: '{damaged}' is skipped: damaged: ")
    assert fednode(*words, "--format", "json") == 3
    rows = [json.loads(one) for one in fednode.out.splitlines()]
    assert [row["image"] for row in rows if "fault" in row] == [str(damaged)]
    assert len([row for row in rows if "classes" in row]) == 13


def test_predict_names_classes_that_it_leaves_out(
    fednode: Fednode, tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prompts, "left_out", lambda *_: "b also knows lemon")
    image = tuned / "images" / "lemon" / "5.png"
    for flags, said in (((), True), (("--classes", "lemon"), False)):
        assert fednode("predict", image, "--state", tuned / "state", *flags) == 0
        assert ("note: b also knows lemon" in fednode.err) == said


def test_what_predict_cannot_do_is_a_sentence(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    state, image = tuned / "state", tuned / "images" / "sea" / "0.png"
    text = tmp_path / "text.png"
    text.write_text("not an image")
    assert str(text) in fednode.fault("predict", "--state", state, text)
    assert "'gone.png' is skipped: cannot be read: No such file" in fednode.fault(
        "predict", "--state", state, "gone.png"
    )
    assert "empty name" in fednode.fault("predict", "--state", state, "--classes", "a,,b", image)
    assert "No node has run here" in fednode.fault("predict", image)
    assert "no image in what was" in fednode.fault(
        "predict", "--state", state, state / "checkpoints"
    )
    assert str(tmp_path) in fednode.fault("predict", "--state", tmp_path, image)


def test_the_window_travels_with_exported_prompts(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    state, out = tmp_path / "state", tmp_path / "p.safetensors"
    shutil.copytree(tuned / "state", state)
    settings = recall(state, ("data.window=[-160, 240]",)).settings
    remember(state, "a", settings, ("lemon", "sea"))
    assert fednode("export", "--state", state, out) == 0
    assert package.load(out).settings.data.window == (-160.0, 240.0)
    again = ("import", out, "--state", tmp_path / "again", "--set")
    assert fednode(*again, f"data.path={tuned / 'images'}") == 0
    assert recall(tmp_path / "again").settings.data.window == (-160.0, 240.0)
