"""The list of mutants fits the code; the program judges a mutant by pytest's exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import mutants
from tests.mutant import Mutant
from tests.mutants import MUTANTS, ROOT


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_mutant_can_be_made_and_its_tests_exist(name: str) -> None:
    mutant = MUTANTS[name]
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert mutant.file.partition("/")[0] in mutants.FOLDERS
    assert mutant.tests
    for one in mutant.tests:
        file, _, test = one.partition("::")
        assert test.partition("[")[0] in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "said"),
    [(1, "killed"), (0, "SURVIVED"), (2, "pytest ended with 2"), (None, "did not end within")],
)
def test_a_mutant_is_killed_by_a_test_that_fails_and_by_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None, said: str
) -> None:
    (tmp_path / "tools").mkdir()
    file, seen = tmp_path / "tools/file.py", list[str]()
    file.write_text("a = 1\nb = 2\n")

    def run(folder: Path, tests: tuple[str, ...]) -> int | None:
        seen.append(file.read_text())
        return code

    monkeypatch.setattr(mutants, "run", run)
    mutant = Mutant("tools/file.py", "a = 1", "a = 3", ("tests/x.py",))
    assert said in mutants.judged(tmp_path, mutant)
    assert seen == ["a = 3\nb = 2\n"]
    assert file.read_text() == "a = 1\nb = 2\n"


def test_a_text_that_is_not_there_once_is_named(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/file.py").write_text("a = 1\na = 1\n")
    said = mutants.judged(tmp_path, Mutant("tools/file.py", "a = 1", "a = 3", ("tests/x.py",)))
    assert said == "cannot be made: tools/file.py holds its text 2 times"


def test_an_unknown_name_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["nonsense"]) == 1
    assert "No mutant is called 'nonsense'. The mutants are: krum-" in capsys.readouterr().out
