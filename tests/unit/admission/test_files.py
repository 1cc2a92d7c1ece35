"""The files of a register: what was put is read again, and a damaged file is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fednode.admission.files import Enrolled, Files, Request, Token
from fednode.errors import StateError
from tests.unit.identity.people import A, B, revocation


def test_records_are_read_as_they_were_put_and_a_missing_file_holds_nothing(tmp_path: Path) -> None:
    files = Files(tmp_path / "new")
    assert [files.tokens(), files.requests(), files.enrolled(), files.revocations()] == [[]] * 4
    token, request = Token("digest", "a", 1, 7, "id", True, "wanted"), Request("a", "id", "at:1")
    b, a = Enrolled("b", "id2", "at:2", "bGVhc2Uy"), Enrolled("a", "id", "at:1", "bGVhc2U=")
    proofs = [revocation("a", A), revocation("b", B)]
    with files.alone():
        files.put_tokens([token])
        files.put_requests([request])
        files.put_enrolled([b, a])
        for proof in proofs:
            files.add_revocation(proof)
    again = Files(tmp_path / "new")
    assert (again.tokens(), again.requests(), again.enrolled()) == ([token], [request], [a, b])
    assert again.revocations() == proofs


def test_a_file_of_a_newer_version_is_not_taken_because_its_new_parts_would_be_lost(
    tmp_path: Path,
) -> None:
    entry = {"digest": "d", "name": "b", "uses": 1, "colour": "red"}
    (tmp_path / "tokens.json").write_text(json.dumps([entry]))
    with pytest.raises(StateError, match=r"tokens.json was written by a newer version of fednode"):
        Files(tmp_path).tokens()
    older = {"digest": "d", "name": "b", "uses": 1, "taken": "x"}
    (tmp_path / "tokens.json").write_text(json.dumps([older]))
    assert Files(tmp_path).tokens()[0].taken == "x", "an older version may know fewer parts"


STRANGE: tuple[object, ...] = (None, 1, [], {}, True)
NODE = {"name": "b", "id": "i", "address": "h:1", "lease": "AAAA"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "7", "null", '"x"', '{"a": 1}', "[1]", "[null]", "[[1]]", '["x"]', "[{}]"),
        *("[" * 100_000, "[NaN]", "\udcff", json.dumps([NODE | {"lease": "?"}])),
        *(json.dumps([NODE | {key: value}]) for key in NODE for value in STRANGE),
    ],
    ids=lambda text: repr(text[:60]),
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "enrolled.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StateError, match=r"enrolled.json is damaged \((.|\n)*: restore it"):
        Files(tmp_path).enrolled()


@pytest.mark.parametrize("text", ["no base64 at all", "AAAA\n", "\udcff", "A"])
def test_damaged_revocations_are_said_as_such(tmp_path: Path, text: str) -> None:
    (tmp_path / "revoked.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StateError, match=r"revoked.txt is damaged \(.*: restore it"):
        Files(tmp_path).revocations()
