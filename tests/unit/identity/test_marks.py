"""Signatures under marks: only the key that a mark is about makes one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fednode.core.types import Mark
from fednode.identity import keys
from fednode.identity.identity import Identity
from fednode.identity.marks import Marks

MARK = Mark(process="ab", run=1, round=7, released=9)


def signed(marks: Marks) -> Mark:
    return replace(MARK, proof=marks.sign(MARK))


def test_a_proof_holds_for_its_key_and_these_values(tmp_path: Path) -> None:
    own, other = (Marks("m", Identity(tmp_path / name, "m", name)) for name in "ab")
    made = signed(own)
    assert len(made.proof) == 64
    assert own.own(made) == made
    assert other.own(made) == replace(made, proof=b"")
    assert own.own(None) is None


def test_a_proof_of_an_earlier_version_names_its_key(tmp_path: Path) -> None:
    own, other = (Marks("m", Identity(tmp_path / name, "m", name)) for name in "ab")
    for marks, holds in ((own, True), (other, False)):
        assert marks.identity is not None
        public = keys.raw(marks.identity.key.public_key())
        made = replace(MARK, proof=public + own.sign(MARK))
        assert own.own(made) == (made if holds else MARK)


def test_after_a_change_of_the_key_the_new_one_signs(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "m", "a")
    marks = Marks("m", identity)
    before = signed(marks)
    identity.rotate()
    assert marks.own(before) == MARK
    assert marks.own(signed(marks)) == signed(marks)
    assert signed(marks) != before


@pytest.mark.parametrize("changed", [{"process": "ac"}, {"run": 0}, {"round": 8}, {"released": 10}])
def test_a_changed_mark_loses_its_proof(tmp_path: Path, changed: dict[str, Any]) -> None:
    marks = Marks("m", Identity(tmp_path, "m", "a"))
    false = replace(signed(marks), **changed)
    assert marks.own(false) == replace(false, proof=b"")


def test_a_mark_of_another_mesh_and_bytes_that_are_no_proof_count_nothing(tmp_path: Path) -> None:
    marks = Marks("m", Identity(tmp_path, "m", "a"))
    false = [signed(Marks("other", marks.identity)).proof, b"", b"x", bytes(96), bytes(200)]
    for proof in false:
        assert marks.own(replace(MARK, proof=proof)) == MARK


def test_without_keys_nothing_is_signed(tmp_path: Path) -> None:
    made = signed(Marks("m", Identity(tmp_path, "m", "a")))
    none = Marks("m")
    assert none.sign(MARK) == b""
    assert none.own(made) == MARK
