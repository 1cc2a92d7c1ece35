"""Stages run from the command line, go on where they were ended, and fail with one sentence."""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from PIL import Image

from fednode.clip import mini
from fednode.errors import DataError
from tests.unit.tools.pretrain import world as world
from tools.pretrain import align, evaluate, hybrid, schedule, teachers, tower
from tools.pretrain.__main__ import main


class Ended(Exception):
    """Stands for a run that is killed."""


def work(path: Path, steps: int, end: int | None = None) -> dict[str, torch.Tensor]:
    """Train a small model on chances of each step's own; stop before step `end`."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    matrices = [one for one in model.parameters() if one.ndim == 2]
    others = [one for one in model.parameters() if one.ndim == 1]
    descents: dict[str, torch.optim.Optimizer] = {
        "muon": torch.optim.Muon(matrices, lr=0.01, adjust_lr_fn="match_rms_adamw"),
        "adam": torch.optim.AdamW(others, lr=0.1),
    }

    def step(number: int) -> float:
        if number == end:
            raise Ended
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(number))
        loss = (model(x) - 1).square().mean()
        for one in descents.values():
            one.zero_grad()
        torch.autograd.backward(loss)
        for one in descents.values():
            one.step()
        return float(loss.detach())

    schedule.run("test", steps, step, {"model": model}, descents, path)
    return model.state_dict()


def test_a_run_that_was_ended_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = work(tmp_path / "whole.pt", 12)
    monkeypatch.setattr(schedule, "SAVE_EVERY_S", -1.0)
    path = tmp_path / "parts/ended.pt"
    for end in (3, 4, 9):
        with pytest.raises(Ended):
            work(path, 12, end)
    found = work(path, 12)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(one, wanted[name]) for name, one in found.items())
    assert sorted(one.name for one in path.parent.iterdir()) == ["ended.pt"]
    again = work(path, 12, 0)  # nothing is left to do
    assert all(torch.equal(one, wanted[name]) for name, one in again.items())


def test_a_learning_rate_rises_and_falls_to_nothing() -> None:
    rates = [schedule.rate(step, 100) for step in range(101)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0
    assert all(one > two for one, two in pairwise(rates[4:]))
    assert rates[52] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0, abs=1e-12)
    assert schedule.rate(0, 1) == 1.0


def write_zip(path: Path, inside: str, classes: tuple[str, ...]) -> None:
    """Write an archive of two pictures a class."""
    with zipfile.ZipFile(path, "a") as file:
        for name in classes:
            for number in range(2):
                content = io.BytesIO()
                Image.fromarray(world.photo(number, (50, 50))).save(content, "PNG")
                file.writestr(f"{inside}{name}/{number}.png", content.getvalue())
        file.writestr(f"{inside}{classes[0]}/notes.txt", "no picture")


def test_classes_are_the_folders_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "caltech.zip"
    write_zip(path, "top/101_ObjectCategories/", ("BACKGROUND_Google", "crab", "sea_horse"))
    found = evaluate.classes_of(path, "101_ObjectCategories/")
    assert sorted(found) == ["crab", "sea_horse"]
    assert [len(files) for files in found.values()] == [2, 2]
    with pytest.raises(DataError, match="no class folders below 'PACS/'"):
        evaluate.classes_of(path, "PACS/")
    (tmp_path / "text").write_text("text")
    for wrong in ("text", "nothing"):
        with pytest.raises(DataError, match="is no zip file"):
            evaluate.classes_of(tmp_path / wrong, "PACS/")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return what runs a stage on small networks in a folder of few pictures."""
    world.shrink(monkeypatch)
    monkeypatch.setattr(torch, "compile", lambda module: module)
    monkeypatch.setattr(tower, "BATCH", 10)
    monkeypatch.setattr(align, "tune", partial(align.tune, batch=9))
    monkeypatch.setattr(hybrid, "fit", partial(hybrid.fit, batch=4))
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    words = world.write_wordnet(tmp_path / "wordnet")
    folder = world.write_pictures(tmp_path / "work")

    def stage(name: str, *options: str) -> int:
        place = ("--work", str(folder), "--wordnet", str(words)) if name != "evaluate" else ()
        return main([name, *place, *options])

    return stage


def test_stages_make_a_model_one_after_the_other(
    run: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "model"
    for stage in (
        ("views", "--processes", "1"),
        ("teach",),
        ("tower", "--steps", "2"),
        ("linear", "--steps", "2"),
        ("tune", "--steps", "2"),
        ("hybrid", "--steps", "2", "--rows", "6"),
        ("export", "--out", str(out)),
    ):
        assert run(*stage) == 0, stage
    assert mini.expand(out)[1]["version"] == 2
    (tmp_path / "work/hybrid.pt").unlink()
    assert run("export") == 1
    assert "hybrid.pt is missing: run the stage hybrid first." in capsys.readouterr().err
    for name in ("tower.pt", "tune.pt"):
        (tmp_path / "work" / name).unlink()
    for name in ("tower", "tune"):
        assert run(name, "--steps", "1", "--start", str(out)) == 0

    pacs, caltech = tmp_path / "pacs.zip", tmp_path / "caltech.zip"
    for domain in ("photo", "art_painting", "cartoon", "sketch"):
        write_zip(pacs, f"PACS/{domain}/", ("dog", "car"))
    write_zip(caltech, "101_ObjectCategories/", ("lobster", "Faces_easy", "dog"))
    capsys.readouterr()
    archives = ("--pacs", str(pacs), "--caltech", str(caltech))
    assert run("overlap", *archives, "--count", "3", "--out", str(tmp_path / "sheets")) == 0
    assert "coco and cartoon: " in capsys.readouterr().out
    assert len(list((tmp_path / "sheets").iterdir())) == 3 * 5
    given = ("--model", str(out), *archives)
    assert run("evaluate", *given) == 0
    shown = capsys.readouterr().out
    assert "Caltech-101: " in shown
    assert "of 4, mean of 2 classes" in shown
    assert shown.count("%") >= 6


@pytest.mark.parametrize(
    ("stage", "sentence"),
    [
        (("linear",), "icons-00000.npz is missing: run the stage views to its end first."),
        (("tower",), "holds no vectors of names: run the stage teach first."),
        (("evaluate", "--model", "nowhere"), "nowhere holds no exported model"),
    ],
)
def test_what_a_stage_lacks_is_one_sentence(
    run: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    stage: tuple[str, ...],
    sentence: str,
) -> None:
    assert run(*stage) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1


def test_a_folder_that_lacks_everything_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["views", "--work", str(tmp_path), "--wordnet", str(tmp_path)]) == 1
    assert "has no WordNet file data.noun" in capsys.readouterr().err


def test_a_package_that_is_missing_is_named(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'transformers'", name="transformers")

    monkeypatch.setattr(teachers, "Sentences", missing)
    assert run("teach") == 1
    assert "transformers is missing: install fednode[pretrain]" in capsys.readouterr().err
