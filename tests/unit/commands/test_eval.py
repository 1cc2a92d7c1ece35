"""`fednode eval`: accuracies and mistakes of a state directory's prompts."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from fednode.app import baseline
from fednode.app.state_dir import recall, settings_text
from fednode.evaluation.intervals import wilson
from fednode.storage.store import SETTINGS
from tests.unit.commands.run import Fednode
from tests.unit.commands.tuned import tune_in


def test_eval_prints_the_hand_written_and_the_tuned_prompt(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    state = shutil.copytree(tuned / "state", tmp_path / "state")
    assert fednode("eval", "--state", state, "--set", "data.shots=0", "--format", "json") == 0
    found = json.loads(fednode.out)
    assert found["round"] == 1
    assert found["tuned"] == {"own": 1.0}  # a lemon and the sea are easily told apart
    assert set(found["zero-shot"]) == {"own"}
    assert (found["data"], found["classes"]) == (str(tuned / "images"), ["lemon", "sea"])
    assert found["test_images"] == {"own": 4}
    assert "This node uses 8 of 8 training" not in fednode.err
    assert fednode("eval", "--state", state, "--set", "data.shots=1") == 0
    assert "This node uses 2 of 8 training images: data.shots is 1; 0 takes all." in fednode.err
    lines = fednode.out.splitlines()
    assert lines[0].startswith("Round 1 in ")
    assert lines[1] == f"Test images of {tuned / 'images'}, 2 classes: lemon, sea"
    assert [lines[2].split(), lines[4].split()] == [["accuracy,", "%", "own"], ["tuned", "100.0"]]
    assert lines[5].split() == ["test", "images", "4"]
    assert lines[6].split() == ["tuned,", "95", "%", "51-100"]
    assert lines[7].startswith("round 1: mesh 100.0, zero-shot ")
    assert lines[7].endswith("alone is unknown: `fednode eval` without --set trains it")
    assert not (state / baseline.FILE).exists()
    assert not (state / baseline.COMPARISON).exists()
    title = "own test images, tuned prompts, each class against the rest, in percent"
    assert lines[9] == f"{title} (zero-shot: the sensitivity):"
    untuned = found["by_class"]["own"]["zero-shot"]
    first, second = (f"{100 * one['sensitivity']:.1f}" for one in untuned["by_class"])
    assert [line.split() for line in lines[11:14]] == [
        ["1", "lemon", "3", "100.0", "44-100", first, "100.0", "21-100", "100.0", "-"],
        ["2", "sea", "1", "100.0", "21-100", second, "100.0", "44-100", "100.0", "-"],
        ["mean", "of", "2", "classes", "4", "100.0", mean(first, second), *["100.0"] * 2],
    ]
    assert [line.split() for line in lines[-3:]] == [
        *(["1", "2"], ["1", "lemon", "3", "0"], ["2", "sea", "0", "1"]),
    ]


def mean(*shown: str) -> str:
    return f"{sum(map(float, shown)) / len(shown):.1f}"


def test_training_alone_is_a_row_beside_the_mesh(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    state = shutil.copytree(tuned / "state", tmp_path / "state")
    held = recall(state)
    assert fednode("eval", "--state", state, "--format", "json") == 0
    assert "Trained the control, 1 round on this node's images alone, in " in fednode.err
    found = json.loads(fednode.out)
    accuracy = found["alone"]
    assert found["by_class"]["own"]["alone"]["accuracy"] == accuracy["own"]
    (said,) = found["compared"]
    assert f"alone {100 * accuracy['own']:.1f}" in said
    (kept, *_), counts = baseline.comparison(held.settings, state)
    assert kept == said
    assert counts == found["gain"]["own"]["counts"]
    images, gained, _ = counts
    assert images == found["test_images"]["own"]
    assert gained == round(images * (found["tuned"]["own"] - accuracy["own"]))
    assert fednode("eval", "--state", state) == 0
    assert "Trained the control" not in fednode.err, "it is kept"
    assert said in fednode.out
    lines = [line.split() for line in fednode.out.splitlines()]
    assert lines[3:6] == [
        ["zero-shot", f"{100 * found['zero-shot']['own']:.1f}"],
        ["alone", f"{100 * accuracy['own']:.1f}"],
        ["tuned", "100.0"],
    ]
    heads = ["class", "images", "sensitivity", "95", "%", "zero-shot", "alone"]
    assert [*heads, "specificity", "95", "%", "AUC", "95", "%"] in lines


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
    assert "Images that are in several classes: " in fednode.err
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
        lemons = sum(counts[0])
        assert float(lemon["sensitivity"]) == pytest.approx(counts[0][0] / lemons, abs=1e-6)
        assert float(lemon["auc"]) == pytest.approx(tree["by_class"][0]["auc"], abs=1e-6)
        low, high = wilson(counts[0][0], lemons)
        assert float(lemon["sensitivity 95 % low"]) == pytest.approx(low, abs=1e-6)
        assert float(lemon["sensitivity 95 % high"]) == pytest.approx(high, abs=1e-6)
    assert found["tuned"]["confusion"][0][1] > 0, "the sea among the lemons is seen"


def test_a_folder_that_was_never_trained_on_is_measured_whole(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    """Six images of four patients; a class of the node's that the folder has not stays a choice."""
    for at in range(6):
        (tmp_path / "new" / "sea").mkdir(parents=True, exist_ok=True)
        path = tuned / "images" / ("lemon" if at > 3 else "sea") / f"{at}.png"
        shutil.copy(path, tmp_path / "new" / "sea" / f"p{at // 2 + at % 2 * (at < 2)}_{at}.png")
    words = ("eval", "--state", tuned / "state", "--data", tmp_path / "new")
    grouped = ("--set", "data.groups=p(\\d)", "--format")
    assert fednode(*words, *grouped, "json") == 0
    found = json.loads(fednode.out)
    assert (found["classes"], found["test_images"]) == (["lemon", "sea"], {"own": 6})
    assert found["data"] == str(tmp_path / "new")
    measured = found["by_class"]["own"]["tuned"]
    assert measured["confusion"] == [[0, 0], [2, 4]]
    assert (measured["patients"], found["tuned"]) == (3, {"own": pytest.approx(4 / 6)})
    assert measured["by_class"][1]["sensitivity_95"] == measured["accuracy_95"]
    assert "over 3 patients" in found["compared"][0] or "same images" in found["compared"][0]
    assert "the prompts of round 1 (" in found["answers"]
    assert fednode(*words, *grouped, "text") == 0
    lines = [line.split() for line in fednode.out.splitlines()]
    assert ["test", "images", "6"] in lines
    assert ["patients", "3"] in lines
    assert "these classes: the prompts of round 1 (" in fednode.out
    assert fednode(*words, *grouped, "csv") == 0
    rows = list(csv.DictReader(fednode.out.splitlines()))
    assert {row["patients"] for row in rows} == {"3"}
    assert rows[-1]["auc 95 % low"] == ""
    assert fednode(*words, "--format", "csv") == 0
    assert next(csv.DictReader(fednode.out.splitlines()))["patients"] == ""
    assert not (tuned / "state" / baseline.COMPARISON).exists()


def test_another_folder_is_not_read_by_the_settings_of_the_own_one(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    """The node's folder had patients, a table and names of its own; the other one has none."""
    state = shutil.copytree(tuned / "state", tmp_path / "state")
    own = ("data.groups=person(.)", "data.rename={sea: ocean}", "data.classes=[lemon, sea]")
    text = settings_text(recall(state, own).settings)
    (state / SETTINGS).write_text(text)
    assert recall(state).settings.data.groups == "person(.)"
    words = ("eval", "--state", state, "--data", tuned / "images", "--format", "json")
    assert fednode(*words) == 0, fednode.err
    found = json.loads(fednode.out)
    assert (found["classes"], found["test_images"]) == (["lemon", "sea"], {"own": 12})
    said = "data.groups is 'person(.)', and it finds no patient"
    assert said in fednode.fault(*words, "--set", "data.groups=person(.)")


def test_a_folder_of_one_strange_class_is_refused(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    shutil.copytree(tuned / "images" / "sea", tmp_path / "new" / "ocean")
    words = ("eval", "--state", tuned / "state", "--data", tmp_path / "new")
    assert "has one class, 'ocean', and the node has no class of this name" in fednode.fault(*words)
    assert fednode(*words, "--set", 'data.rename={"ocean": sea}', "--format", "json") == 0
    assert json.loads(fednode.out)["test_images"] == {"own": 6}


def test_a_formula_is_measured_on_all_images(fednode: Fednode, tmp_path: Path) -> None:
    """Of policy gda all 12 images are left out in turns; of a copy of the folder only the tests."""
    state = tune_in(tmp_path, "policy.name=gda", "data.shots=0")
    assert fednode("eval", "--state", state, "--format", "json") == 0
    found = json.loads(fednode.out)
    assert found["test_images"] == {"own": 12}
    measured = found["by_class"]["own"]
    assert {
        row: measured[row]["folds"] for row in ("zero-shot", "alone", "tuned")
    } == dict.fromkeys(("zero-shot", "alone", "tuned"), 10)
    assert found["tuned"] == found["alone"] == {"own": 1.0}
    gain = found["gain"]["own"]
    assert (gain["accuracy"], gain["balanced"], gain["differ"]) == (0.0, 0.0, 0)
    (said,) = found["compared"]
    assert "% of 12 images, each left out; mesh and alone are right on the same images" in said
    assert fednode("eval", "--state", state) == 0
    assert f"\nImages of {tmp_path / 'images'}, 2 classes" in fednode.out
    assert ["images", "12"] in [line.split() for line in fednode.out.splitlines()]
    assert "\nown images, each left out, tuned prompts, each class against" in fednode.out
    assert "test images" not in fednode.out.lower()
    shutil.copytree(tmp_path / "images", tmp_path / "copy")
    assert (
        fednode(
            "eval", "--state", state, "--set", f"data.path={tmp_path / 'copy'}", "--format", "json"
        )
        == 0
    )
    assert json.loads(fednode.out)["by_class"]["own"]["tuned"]["folds"] == 0


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
    assert "; alone is unknown: imported prompts do not tell their rounds" in fednode.out
    said = fednode.fault("import", out, "--state", tmp_path / "b", "--set", "data.path=nowhere")
    assert f"'{tmp_path / 'nowhere'}' does not exist" in said
    assert not (tmp_path / "b").exists()
    (tmp_path / "photos").symlink_to(tuned / "images")
    assert fednode("import", out, "--state", tmp_path / "c", "--set", "data.path=photos") == 0
    assert f"`eval` measures them on the images in {tmp_path / 'photos'}." in fednode.out
    assert fednode("eval", "--state", tmp_path / "c", "--format", "json") == 0
    assert json.loads(fednode.out)["data"] == str(tmp_path / "photos")
