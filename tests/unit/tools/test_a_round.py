"""docs/a-round.txt shows what the simulator plays today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import a_round


def test_the_file_is_what_the_simulator_plays() -> None:
    text = a_round.FILE.read_text(encoding="utf-8")
    assert a_round.story() == text, "run python -m tools.a_round"
    for shown in ("Adopt: round 1", "want of round 2", "Record round.taken: this node was 8"):
        assert shown in text


def test_a_file_that_differs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(a_round, "FILE", tmp_path / "a-round.txt")
    assert a_round.main([]) == 0
    assert a_round.main(["--check"]) == 0
    a_round.FILE.write_text("another round\n")
    assert a_round.main(["--check"]) == 1
    assert "is not what the simulator plays: run python -m tools.a_round" in capsys.readouterr().err
