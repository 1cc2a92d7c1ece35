"""The files of a register: what was put is read again, and a damaged file is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fednode.admission.files import Enrolled, Files, Request, Token
from fednode.errors import StateError


def test_records_are_read_as_they_were_put_and_a_missing_file_holds_nothing(tmp_path: Path) -> None:
    files = Files(tmp_path / "new")
    assert [files.tokens(), files.requests(), files.enrolled(), files.revocations()] == [[]] * 4
    token, request = Token("digest", "a", 1, 7, "id", True, "wanted"), Request("a", "id", "at:1")
    b, a = Enrolled("b", "id2", "at:2", "lease2"), Enrolled("a", "id", "at:1", "lease")
    with files.alone():
        files.put_tokens([token])
        files.put_requests([request])
        files.put_enrolled([b, a])
        files.add_revocation(b"one")
        files.add_revocation(b"two")
    again = Files(tmp_path / "new")
    assert (again.tokens(), again.requests(), again.enrolled()) == ([token], [request], [a, b])
    assert again.revocations() == [b"one", b"two"]


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


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "enrolled.json").write_text("{")
    with pytest.raises(StateError, match=r"enrolled.json is damaged \(.*: restore it"):
        Files(tmp_path).enrolled()
