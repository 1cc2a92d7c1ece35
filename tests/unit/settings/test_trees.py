"""YAML that is small and stands for very much, or nests for ever, is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fednode.api import _described
from fednode.errors import ConfigError, ModelError
from fednode.settings import trees
from fednode.settings.read import load_settings, read_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{two}: &{two} [{', '.join([f'*{one}'] * 9)}]\n"
    for one, two in zip("abcdefgh", "bcdefghi", strict=True)
)
DEEP = "a: " + "[" * 1200
LOOP = "a: &a [*a]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "it stands for more than 100,000 values"),
        (DEEP, "it nests deeper than 32 levels"),
        ("a:\n" + "".join(" " * at + "b:\n" for at in range(1, 90)), "nests deeper than 32"),
        (LOOP, "the alias 'a' refers to itself"),
        ("a: 2001-13-13\n", "month must be in 1..12"),
        ("a: " + "x" * trees.TEXT_MAX, "1,048,576 is the limit"),
    ],
)
def test_what_is_too_much_is_refused_at_once(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"is not valid YAML: .*{said}"):
        read_yaml(path)


@pytest.mark.parametrize("text", [BOMB, DEEP, LOOP])
def test_flags_and_foreign_metadata_are_read_within_the_same_bounds(text: str) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_settings(None, {}, [f"name={text}"])
    with pytest.raises(ModelError, match=r"file holds metadata that `fednode export` did not"):
        _described({"settings": text}, Path("file"))


def test_metadata_of_another_version_is_named_and_too_deep_a_list_refused() -> None:
    with pytest.raises(ConfigError, match=r"'tuning.decay': another version .* export it again"):
        _described({"settings": "tuning: {decay: 0.1}"}, Path("file"))
    with pytest.raises(ModelError, match=r"file holds metadata that `fednode export` did not"):
        _described({"classes": "[" * 100_000}, Path("file"))


@pytest.mark.parametrize("end", ["", ".5"])
def test_digits_between_colons_are_a_text_however_many(end: str) -> None:
    text = "1" + ":59" * 30_000 + end
    assert trees.read(f"a: {text}")[1] == {"a": text}


NUMBERS = """
[0, 00, 1, -1, +12, 1_000, 0b11, -0b1, 0o7, 017, 08, 0x1F, -0x_f, 1., 1.5, -.5, +.5e+3, 1e5, 1.e+5,
1.0e-3, 1_0.0, .inf, -.Inf, +.INF, .NAN, -.nan, 1.5e3, ., -, +, _1, 1a, 2001-01-01, yes, ~]
"""


def test_numbers_without_colons_are_those_of_the_library() -> None:
    found, wanted = trees.read(NUMBERS)[1], yaml.safe_load(NUMBERS)
    assert repr(found) == repr(wanted)


def test_aliases_that_say_the_same_twice_are_read() -> None:
    text = "a: &a {b: [1, 2]}\nc: *a\nd: &d x\ne: [*d, *d]\n"
    assert trees.read(text)[1] == yaml.safe_load(text)
    assert trees.read("")[1] is None
