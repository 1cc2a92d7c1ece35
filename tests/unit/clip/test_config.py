"""The numbers of a model's configuration: each is bounded, and nothing is built before."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any, Final

import open_clip
import pytest

from fednode.clip.config import BOUNDS, CONFIG, SIZES, Bound, check_numbers, read_config, read_sizes
from fednode.clip.load import load_model
from fednode.clip.settings import ModelSettings
from fednode.errors import ModelError
from tests.unit.clip import folders

WRONG: Final[tuple[Any, ...]] = (
    *(-1001, 10_000_000, 10**30, math.inf, math.nan),
    *(True, "12", [12], {"a": 12}),
)


def tree(section: str, key: str, value: object) -> dict[str, Any]:
    made = json.loads(json.dumps(folders.CONFIG))
    inside = made["model_cfg"]
    if section == "preprocess_cfg":
        inside = made[section]
    elif section:
        inside = inside[section]
    inside[key] = value
    return made  # type: ignore[no-any-return]


def test_no_number_of_a_configuration_is_believed(tmp_path: Path) -> None:
    for key, bound in BOUNDS.items():
        even = {value for value in (0, 1.5) if not bound.holds(value)}
        sections = ("vision_cfg", "text_cfg", "preprocess_cfg") if key != "embed_dim" else ("",)
        for value, section in itertools.product((*WRONG, *even), sections):
            (tmp_path / CONFIG).write_text(json.dumps(tree(section, key, value)))
            with pytest.raises(ModelError) as fault:
                read_config(tmp_path, "local-dir:x")
            sentence = str(fault.value)
            assert f"{tmp_path / CONFIG} says that " in sentence
            assert f".{key} is " in sentence
            assert f"; it must be {bound}: fetch the file again." in sentence
            assert len(sentence) < 300 + len(str(tmp_path))


def test_both_ends_of_a_bound_are_taken_and_a_bound_says_itself() -> None:
    for key, bound in BOUNDS.items():
        for value in (bound.low, bound.high, None):
            check_numbers({key: value}, BOUNDS, Path())
        if bound.length:
            check_numbers({key: [bound.high] * bound.length}, BOUNDS, Path())
            for length in (bound.length - 1, bound.length + 1):
                assert not bound.holds([bound.high] * length)
        beyond = bound.high + 1
        assert not bound.holds(beyond)
        assert not bound.holds(bound.low - 1)
        assert not bound.holds([beyond] * max(1, bound.length))
        assert bound.kind is float or not bound.holds(1.5)
    assert str(BOUNDS["layers"]) == "a whole number from 1 to 256, or 4 of them"
    assert str(Bound(0.5, 2, float)) == "a number from 0.5 to 2"


def test_each_architecture_of_open_clip_lies_within_the_bounds() -> None:
    for name in open_clip.list_models():
        check_numbers(open_clip.get_model_config(name), BOUNDS, Path(name))
    check_numbers(folders.REAL, BOUNDS, Path())


def test_nothing_is_built_of_a_wrong_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.biomedical(tmp_path)
    monkeypatch.setattr(open_clip, "create_model", lambda *_, **__: pytest.fail("built"))
    (tmp_path / CONFIG).write_text(json.dumps(tree("vision_cfg", "layers", 10_000_000)))
    with pytest.raises(ModelError, match=r"vision_cfg\.layers is 10000000; it must be a whole n"):
        load_model(ModelSettings(name=f"local-dir:{tmp_path}"))


def test_the_sizes_of_a_text_tower_are_bounded(tmp_path: Path) -> None:
    for change in (
        {"num_hidden_layers": 10_000_000},
        {"num_layers": -1},
        {"hidden_size": 10**12},
        {"other": [{"vocab_size": 10**12}]},
    ):
        (tmp_path / SIZES).write_text(json.dumps({"model_type": "bert", **change}))
        with pytest.raises(ModelError, match=rf"{SIZES} says that .*; it must be a whole number"):
            read_sizes(tmp_path)
    (tmp_path / SIZES).write_text("[" * 100_000)
    assert read_sizes(tmp_path) is None


def test_a_preprocessing_that_open_clip_lacks_is_a_sentence(tmp_path: Path) -> None:
    folders.biomedical(tmp_path)
    for key in ("mode", "interpolation", "resize_mode"):
        (tmp_path / CONFIG).write_text(json.dumps(tree("preprocess_cfg", key, "other")))
        with pytest.raises(ModelError, match="describes no model that open_clip builds"):
            load_model(ModelSettings(name=f"local-dir:{tmp_path}"))
