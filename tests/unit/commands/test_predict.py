"""`fednode eval` and `predict`, and what imported prompts are measured on.

The images are coloured squares of two classes, made here; the model is the one that ships.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fednode as package
from fednode.app.saved import recall, remember
from fednode.learn.evaluation import evaluation
from fednode.terminal import classwise
from tests.unit.commands.run import Fednode
from tests.unit.commands.tuned import COLOURS


def test_eval_prints_the_hand_written_and_the_tuned_prompt(fednode: Fednode, tuned: Path) -> None:
    assert fednode("eval", "--state", tuned / "state", "--format", "json") == 0
    found = json.loads(fednode.out)
    assert found["round"] == 1
    assert found["tuned"] == {"own": 1.0}  # a lemon and the sea are easily told apart
    assert set(found["zero-shot"]) == {"own"}
    assert (found["data"], found["classes"]) == (str(tuned / "images"), ["lemon", "sea"])
    assert found["test_images"] == {"own": 4}
    assert fednode("eval", "--state", tuned / "state") == 0
    lines = fednode.out.splitlines()
    assert lines[0].startswith("Prompts of round 1 in ")
    assert lines[1] == f"Test images of {tuned / 'images'}, 2 classes: lemon, sea"
    assert [lines[2].split(), lines[4].split()] == [["accuracy,", "%", "own"], ["tuned", "100.0"]]
    assert lines[5].split() == ["test", "images", "4"]
    assert lines[7] == "own test images, tuned prompts, each class against the rest, in percent:"
    assert [line.split() for line in lines[9:12]] == [
        *(["1", "lemon", "2", "100.0", "100.0", "100.0"], ["2", "sea", "2", *["100.0"] * 3]),
        ["mean", "of", "2", "classes", "4", *["100.0"] * 3],
    ]
    assert [line.split() for line in lines[-3:]] == [
        *(["1", "2"], ["1", "lemon", "2", "0"], ["2", "sea", "0", "2"]),
    ]


def test_eval_counts_mistakes_class_by_class(fednode: Fednode, tuned: Path, tmp_path: Path) -> None:
    """The sea among the lemons, under names that a spreadsheet must not compute."""
    mixed, sea = tmp_path / "mixed", tuned / "images" / "sea"
    shutil.copytree(tuned / "images" / "lemon", mixed / "=lemon")
    shutil.copytree(sea, mixed / "sea")
    for at in range(6):
        shutil.copy(sea / f"{at}.png", mixed / "=lemon" / f"sea{at}.png")
    chosen = ("--set", f"data.path={mixed}", "--set", "data.test=0.5")
    words = ("eval", "--state", tuned / "state", *chosen, "--format")
    assert fednode(*words, "csv") == 0
    rows = list(csv.DictReader(fednode.out.splitlines()))
    assert [(row["prompts"], row["class"]) for row in rows] == [
        *(("zero-shot", "'=lemon"), ("zero-shot", "sea"), ("tuned", "'=lemon"), ("tuned", "sea")),
    ]
    assert fednode(*words, "json") == 0
    found = json.loads(fednode.out)["by_class"]["own"]
    assert found["classes"] == ["=lemon", "sea"]
    for prompts in ("zero-shot", "tuned"):
        lemon, water = (row for row in rows if row["prompts"] == prompts)
        counts = [[int(row[f"predicted as {name}"]) for name in found["classes"]]
                  for row in (lemon, water)]  # fmt: skip
        tree = found[prompts]
        assert counts == tree["confusion"]
        assert [int(lemon["images"]), int(water["images"])] == [sum(one) for one in counts]
        assert [sum(one) for one in counts] == [6, 3]
        assert float(lemon["sensitivity"]) == pytest.approx(counts[0][0] / 6, abs=1e-6)
        assert float(water["specificity"]) == pytest.approx(counts[0][0] / 6, abs=1e-6)
        assert float(lemon["auc"]) == pytest.approx(tree["by_class"][0]["auc"], abs=1e-6)
        assert tree["accuracy"] == pytest.approx((counts[0][0] + counts[1][1]) / 9)
    assert found["tuned"]["confusion"][0][1] > 0, "the sea among the lemons is seen"


def test_eval_of_many_classes_shows_the_worst_and_the_most_frequent_mistakes() -> None:
    names = [f"class {at}" for at in range(30)]
    truth = [at for at in range(30) for _ in range(4)]
    shares = np.eye(30)[truth]
    shares[4 * 7 : 4 * 7 + 3] = np.eye(30)[8]  # three images of class 7 are taken for class 8
    shares[0] = np.eye(30)[29]
    lines = classwise.text("new", evaluation(names, truth, shares))
    assert "the 20 classes of the lowest sensitivity" in lines[0]
    assert lines[2].split() == ["8", "class", "7", "4", "25.0", "100.0", "62.5"]
    assert lines[3].split()[:5] == ["1", "class", "0", "4", "75.0"]
    assert lines[22].startswith("mean of 30 classes")
    assert lines[-3:] == [
        "Most frequent mistakes, 2 of 2 kinds:",
        "       3  class 7 predicted as class 8",
        "       1  class 0 predicted as class 29",
    ]


def test_eval_on_other_images(fednode: Fednode, tuned: Path) -> None:
    words = ("eval", "--state", tuned / "state", "--set", "data.path=/nowhere")
    assert "'/nowhere' does not exist" in fednode.fault(*words)


def test_predict_names_what_images_show(fednode: Fednode, tuned: Path) -> None:
    images = [tuned / "images" / name / "5.png" for name in COLOURS]
    assert fednode("predict", "--state", tuned / "state", "--format", "json", *images) == 0
    rows = [json.loads(line) for line in fednode.out.splitlines()]
    assert [max(row["classes"], key=row["classes"].get) for row in rows] == list(COLOURS)
    assert all(sum(row["classes"].values()) == pytest.approx(1, abs=1e-4) for row in rows)
    assert fednode("predict", "--state", tuned / "state", "--top", "1", images[0]) == 0
    assert fednode.out.startswith(f"{images[0]}: lemon ")


def test_predict_goes_on_after_a_damaged_image(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    shutil.copytree(tuned / "images", tmp_path / "some")
    damaged = tmp_path / "some" / "lemon" / "2.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    words = ("predict", "--state", tuned / "state", tmp_path / "some")
    assert fednode(*words) == 3
    assert len(fednode.out.splitlines()) == 11
    (line,) = [one for one in fednode.err.splitlines() if str(damaged) in one]
    assert line.startswith(f"fednode: '{damaged}' is skipped: damaged: ")
    assert fednode(*words, "--format", "json") == 3
    rows = [json.loads(one) for one in fednode.out.splitlines()]
    assert [row["image"] for row in rows if "fault" in row] == [str(damaged)]
    assert len([row for row in rows if "classes" in row]) == 11


def test_predict_says_where_an_image_has_one_colour(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    flat, deep = tmp_path / "flat.png", tmp_path / "deep.png"
    Image.fromarray(np.full((8, 8), 700, np.uint16)).save(flat)
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 900).save(deep)
    assert fednode("predict", "--state", tuned / "state", flat, deep) == 0
    assert len(fednode.out.splitlines()) == 2
    assert f"'{flat}' has one colour throughout" in fednode.err
    assert str(deep) not in fednode.err


def test_predict_among_other_classes(fednode: Fednode, tuned: Path) -> None:
    image = tuned / "images" / "sea" / "0.png"
    words = (
        "predict",
        "--state",
        tuned / "state",
        "--classes",
        "dog, tree,house",
        "--format",
        "json",
        image,
    )
    assert fednode(*words) == 0
    assert set(json.loads(fednode.out)["classes"]) == {"dog", "tree", "house"}


def test_what_predict_cannot_do_is_a_sentence(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    state, image = tuned / "state", tuned / "images" / "sea" / "0.png"
    text = tmp_path / "text.png"
    text.write_text("not an image")
    assert str(text) in fednode.fault("predict", "--state", state, text)
    assert "no image file gone.png" in fednode.fault("predict", "--state", state, "gone.png")
    assert "empty name" in fednode.fault("predict", "--state", state, "--classes", "a,,b", image)
    assert "No node has run here" in fednode.fault("predict", image)
    assert str(tmp_path) in fednode.fault("predict", "--state", tmp_path, image)


def test_predict_takes_folders_and_paths_from_standard_input(
    fednode: Fednode, tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("predict", "--state", tuned / "state", "--format", "json")
    assert fednode(*words, tuned / "images") == 0
    found = [json.loads(line) for line in fednode.out.splitlines()]
    assert len(found) == 12
    assert all(Path(one["image"]).parent.name in list(one["classes"])[:1] for one in found)
    listed = "\n".join(str(tuned / "images/sea" / f"{at}.png") for at in (2, 0))
    monkeypatch.setattr("sys.stdin", io.StringIO(listed + "\n\n"))
    assert fednode(*words, "-") == 0
    names = [Path(json.loads(line)["image"]).name for line in fednode.out.splitlines()]
    assert names == ["2.png", "0.png"]
    assert "no image in what was given" in fednode.fault(*words, tuned / "state/tensors")


def test_imported_prompts_are_measured_on_images_that_were_named(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    out, new = tmp_path / "p.safetensors", tmp_path / "new"
    assert fednode("export", "--state", tuned / "state", out) == 0
    assert fednode("import", out, "--state", new) == 0
    assert "No folder of images was given: `eval` takes --set data.path=FOLDER." in fednode.out
    said = fednode.fault("eval", "--state", new)
    assert "holds prompts for 2 classes (lemon, sea), and its settings name no folder" in said
    assert fednode("eval", "--state", new, "--set", f"data.path={tuned / 'images'}") == 0
    assert f"Test images of {tuned / 'images'}, 2 classes" in fednode.out
    said = fednode.fault("import", out, "--state", tmp_path / "b", "--set", "data.path=nowhere")
    assert f"'{tmp_path / 'nowhere'}' does not exist" in said
    assert not (tmp_path / "b").exists()
    (tmp_path / "photos").symlink_to(tuned / "images")
    assert fednode("import", out, "--state", tmp_path / "c", "--set", "data.path=photos") == 0
    assert f"`eval` measures them on the images in {tmp_path / 'photos'}." in fednode.out
    assert fednode("eval", "--state", tmp_path / "c", "--format", "json") == 0
    assert json.loads(fednode.out)["data"] == str(tmp_path / "photos")


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
