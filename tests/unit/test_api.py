"""Prompts from Python: they classify as the command does, and say what they cannot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fednode as package
from fednode.api import Prompts, load
from fednode.clip import model as clip
from fednode.core.types import Tensors
from fednode.errors import ConfigError, DataError, StateError
from fednode.storage.store import Store, newest
from tests.unit.commands.run import Fednode


def test_prompts_from_python(fednode: Fednode, tuned: Path, tmp_path: Path) -> None:
    prompts = package.load(tuned / "state")
    assert isinstance(prompts, Prompts)
    assert package.load is load
    assert (prompts.policy, prompts.model, prompts.round) == ("zerodfl", "fednode-mini", 1)
    assert prompts.classes == ("lemon", "sea")
    images = [tuned / "images" / name / "1.png" for name in prompts.classes]
    assert prompts.names(images) == ["lemon", "sea"]
    found = prompts.probabilities(images, ["sea", "lemon", "a house"])
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
    file = tmp_path / "prompts.safetensors"
    assert fednode("export", "--state", tuned / "state", file) == 0
    again = package.load(file)
    assert (again.arrays, again.classes, again.round) == (prompts.arrays, prompts.classes, 1)
    np.testing.assert_array_equal(again.probabilities(images), prompts.probabilities(images))
    features, scale = again.text_features(["lemon"])
    assert features.shape[0] == 1
    assert scale > 1
    with pytest.raises(DataError, match="There is no image file"):
        prompts.names(["nothing.png"])
    with pytest.raises(ConfigError, match="empty name"):
        prompts.names(images, ["", "a"])
    lemon, sea = images
    judged = prompts.evaluate([lemon, sea, sea], ["lemon", "sea", "lemon"])
    assert judged.confusion.tolist() == [[1, 1], [0, 1]]
    assert [one.sensitivity for one in judged.by_class] == [0.5, 1.0]
    assert judged.by_class[0].auc == pytest.approx(0.75)  # one pair won, one tied: the same image
    with pytest.raises(ConfigError, match="3 images and 2 labels: give at least one image"):
        prompts.evaluate([lemon, sea, sea], ["lemon", "sea"])
    with pytest.raises(ConfigError, match="labels holds 'lime'; each label must be one of lemon"):
        prompts.evaluate([lemon], ["lime"])
    with pytest.raises(ConfigError, match="classes names a class twice"):
        prompts.evaluate([lemon], ["lemon"], ["lemon", "lemon"])
    folder = prompts.evaluate(tuned / "images")
    assert folder.images == len(list((tuned / "images").glob("*/*.png")))
    assert folder.classes == ("lemon", "sea")
    with pytest.raises(ConfigError, match="whose folders name the classes: leave labels out"):
        prompts.evaluate(tuned / "images", ["lemon"])
    with Image.open(lemon) as shown:
        pixels = np.asarray(shown.convert("RGB"))
    expected = prompts.probabilities([lemon])
    loose = [Image.open(lemon), pixels, torch.tensor(pixels).permute(2, 0, 1)]
    several = prompts.probabilities(loose)
    np.testing.assert_allclose(several, np.repeat(expected, 3, axis=0), rtol=1e-5)
    assert {"Prompts", "load", "__version__"} <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        package.lode  # noqa: B018


def test_prompts_of_another_model_are_refused(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    """A directory that version 1 of the embedded model was tuned in: its fingerprint differs."""
    state = tmp_path / "state"
    shutil.copytree(tuned / "state", state)
    found, _ = newest(state)
    store = Store(state)
    store.begin_anew({**found.settings, "backbone": "1" * 64})
    store.commit(found.snapshot)
    store.close()
    said = "was tuned with another model, or another version of it (fingerprint 111111111111)"
    image = tuned / "images" / "sea" / "0.png"
    assert said in fednode.fault("eval", "--state", state)
    assert said in fednode.fault("predict", "--state", state, image)
    assert said in fednode.fault("export", "--state", state, tmp_path / "prompts.safetensors")
    assert not (tmp_path / "prompts.safetensors").exists()
    with pytest.raises(StateError, match="was tuned with another model"):
        package.load(state)


def test_python_explains_as_well(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fednode.learn.explain.GRID", 2)
    prompts, lemon = package.load(tuned / "state"), tuned / "images" / "lemon" / "0.png"
    monkeypatch.setattr(clip, "load", lambda _: pytest.fail("the model is loaded already"))
    plain, found = prompts.maps([lemon], ["lemon"])
    assert plain.shape == found.shape
    assert plain.ndim == 3
    assert float(found.max()) <= 1.0
    with pytest.raises(ConfigError, match="1 images and 2 classes: give one for each"):
        prompts.maps([lemon], ["lemon", "sea"])
    assert len(prompts.image_features([lemon])) == 1


@pytest.mark.parametrize(
    ("senders", "asked", "said"),
    [
        ({"a": "xyz", "b": "xz"}, "xyz", ""),
        ({"a": "xyz", "b": "xz"}, "xy", "a and 1 more also know z: use --all-classes"),
        ({"a": "xyz", "b": "xz"}, "xz", "a also knows y: use --all-classes"),
        ({"a": "xyz", "b": "vw", "c": "u"}, "y", "a and 2 more also know u, v, w and 2 more: use"),
        ({}, "x", ""),
    ],
)
def test_classes_that_other_nodes_know_are_named(
    senders: dict[str, str], asked: str, said: str
) -> None:
    known = sorted({name for names in senders.values() for name in names})
    arrays = {
        f"rows/{sender}": np.array([[known.index(name), 1.0, 0.5] for name in sorted(names)])
        for sender, names in senders.items()
    }
    settings: Any = None
    prompts = Prompts(settings, tuple(asked), Tensors(arrays, known), 1)
    found = prompts.left_out(tuple(asked))
    assert found.startswith(said) if said else not found
