"""Tensors are values: nobody can change them, and equality is by content."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from fednode.core.types import EMPTY, PHASES, Phase, Tensors


def test_arrays_are_copied_in_as_float32_and_cannot_be_written() -> None:
    given = np.arange(6, dtype=np.float64).reshape(2, 3)
    tensors = Tensors({"a": given})
    given[0, 0] = 99.0
    assert tensors["a"].dtype == np.float32
    assert tensors["a"][0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        tensors["a"][0, 0] = 1.0


def test_arrays_that_are_taken_are_not_copied_and_cannot_be_written() -> None:
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensors = Tensors.taking({"b": given, "a": Tensors({"x": [1.0]})["x"]})
    assert list(tensors) == ["a", "b"]
    assert tensors["b"] is given
    assert tensors == Tensors({"a": [1.0], "b": given})
    with pytest.raises(ValueError, match="read-only"):
        given[0, 0] = 1.0


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((2, 3), dtype=np.float32).T])
def test_arrays_of_another_form_are_not_taken(wrong: Any) -> None:
    with pytest.raises(TypeError, match="give float32 in C order"):
        Tensors.taking({"a": wrong})


@pytest.mark.parametrize("array", [np.float32(1.5), np.zeros((0, 3)), np.ones((2, 3, 4))])
def test_the_digest_of_any_shape_is_that_of_its_bytes(array: Any) -> None:
    tensors = Tensors({"a": array})
    held = tensors["a"]
    expected = hashlib.sha256(f"a\0{held.shape}\0".encode() + held.tobytes()).hexdigest()
    assert tensors.digest == expected


def test_order_and_memory_layout_do_not_matter_but_names_shapes_and_numbers_do() -> None:
    one = np.arange(6, dtype=np.float32).reshape(2, 3)
    same = Tensors({"b": [1.0], "a": np.asfortranarray(one)})
    assert same == Tensors({"a": one, "b": [1.0]})
    assert hash(same) == hash(Tensors({"a": one, "b": [1.0]}))
    assert list(same) == ["a", "b"]
    others: list[dict[str, Any]] = [
        {"a": one.reshape(3, 2), "b": [1.0]},
        {"a": one, "c": [1.0]},
        {"a": one},
    ]
    for other in others:
        assert same != Tensors(other)
    assert Tensors({"a": [0.0]}) != Tensors({"a": [np.nextafter(np.float32(0), np.float32(1))]})


def test_digest_is_sha256_of_names_shapes_and_little_endian_bytes() -> None:
    array = np.array([[1.5, -2.0]], dtype="<f4")
    expected = hashlib.sha256(b"a\0(1, 2)\0" + array.tobytes()).hexdigest()
    assert Tensors({"a": array}).digest == expected


def test_norm_is_of_everything_together_and_does_not_overflow() -> None:
    assert Tensors({"a": [3.0], "b": [[4.0]]}).norm() == pytest.approx(5.0)
    assert Tensors({"a": [3e38, 3e38]}).norm() == pytest.approx(3e38 * 2**0.5, rel=1e-6)
    assert EMPTY.norm() == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_one_number_that_is_not_finite_shows(bad: float) -> None:
    assert Tensors({"a": [1.0, 2.0]}).finite()
    assert not Tensors({"a": [1.0], "b": [[0.0, bad]]}).finite()


def test_size_and_shapes() -> None:
    tensors = Tensors({"a": np.zeros((2, 3)), "b": np.zeros(5)})
    assert tensors.nbytes == 4 * 11
    assert tensors.shapes == {"a": (2, 3), "b": (5,)}
    assert repr(tensors) == "Tensors(a[2, 3], b[5])"
    assert repr(EMPTY) == "Tensors(empty)"


def test_classes_of_rows_are_a_part_of_the_value() -> None:
    bare = Tensors({"rows": [[1.0], [2.0]]})
    named = Tensors({"rows": [[1.0], [2.0]]}, ("a", "b"))
    assert bare != named
    assert named == Tensors.taking(dict(bare), ("a", "b"))
    assert named.classes == ("a", "b")
    assert named != Tensors({"rows": [[1.0], [2.0]]}, ("b", "a"))
    assert bare.classes == ()


def test_phases_are_the_words_on_the_wire() -> None:
    assert {"hello", "ping", "indirect", "members", "bye"} == PHASES
    assert f"{Phase.HELLO}" == "hello"
