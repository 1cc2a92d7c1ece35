"""`python -m tests.bench.rivals`, without any rival: rows, reasons, ratios, the table."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.bench.rivals import __main__ as program
from tests.bench.rivals import outcome
from tests.bench.rivals.environments import DONE, FLOWER, HIVEMIND, P2PFL, InstallError, interpreter


def run(tmp_path: Path, code: str, limit_s: float = 60.0) -> outcome.Figures:
    command = (sys.executable, "-c", code)
    return outcome.run("p2pfl", "64", command, limit_s, os.environ, tmp_path)


def row(system: str, round_s: float, work: str = "64", **more: float) -> outcome.Figures:
    return outcome.read(system, work, json.dumps({"round_s": round_s, **more}))


def test_the_last_line_of_a_script_becomes_a_row(tmp_path: Path) -> None:
    said = {
        "round_s": 3.5,
        "control": 270,
        "recovery_s": None,
        "recovery_note": "none",
        "rounds": 4,
    }
    found = run(tmp_path, f"print('first'); print({json.dumps(json.dumps(said))})")
    assert found == outcome.Figures(
        system="p2pfl", work="64", round_s=3.5, control=270, reason="none"
    )


def test_a_script_that_fails_becomes_a_row_with_its_last_error(tmp_path: Path) -> None:
    found = run(tmp_path, "raise ValueError('no port\\nwas free')")
    assert found == outcome.failed("p2pfl", "64", "exit code 1: was free")


@pytest.mark.parametrize("line", ["", "done", "[1]", '{"rounds": 3}', '{"round_s": null}'])
def test_a_script_without_figures_becomes_a_row_with_a_reason(tmp_path: Path, line: str) -> None:
    found = run(tmp_path, f"print({line!r})")
    assert found.round_s is None
    assert found.reason.startswith("the script printed no figures: ")


def test_a_script_beyond_its_limit_is_killed_with_its_children(tmp_path: Path) -> None:
    code = "import os; os.fork(); os.read(os.pipe()[0], 1)"
    found = run(tmp_path, code, limit_s=0.5)
    assert (found.round_s, found.reason) == (None, "no result within 0.5 s")


def test_ratios_are_taken_turn_by_turn_and_within_the_same_work() -> None:
    rows = [
        row("fednode async", 0.01), row("p2pfl", 3.0), row("hivemind", 0.1, "8192"),
        row("fednode async", 0.03), outcome.failed("p2pfl", "64", "it  fell\nover"),
        row("fednode async", 0.02), row("p2pfl", 4.0, recovery_s=9.0),
    ]  # fmt: skip
    ours, theirs, recovery, other = outcome.summary(rows, ["fednode async"])
    assert (ours.median, ours.least, ours.most, ours.turns, ours.ratios) == (
        0.02,
        0.01,
        0.03,
        3,
        {},
    )
    assert (theirs.median, theirs.turns, theirs.tried) == (3.5, 2, 3)
    assert theirs.ratios == {"fednode async": pytest.approx((300 + 200) / 2)}
    assert (recovery.figure, recovery.turns, recovery.ratios) == ("recovery_s", 1, {})
    assert (other.system, other.ratios) == ("hivemind", {})
    assert outcome.reasons(rows) == ["p2pfl, 64: it fell over"]
    assert outcome.document(rows, [theirs])["rows"][1]["round_s"] == 3.0


def test_the_table_has_a_line_for_each_system_and_work() -> None:
    rows = [row("a", 0.01, bytes=5500.0), row("b", 2.0), row("a", 0.02, bytes=5500.0), row("b", 2)]
    found = outcome.cells(outcome.summary(rows, ["a"]), ["a"])
    first, second = (list(one.values()) for one in found)
    assert first == ["a", "64", "0.015 (0.01-0.02)", "-", "-", "-", "5,500", "-", "-"]
    assert second == ["b", "64", "2 (2-2)", "150", "-", "-", "-", "-", "-"]
    head, line, *body = outcome.text(found).splitlines()
    assert head.startswith("| system | numbers | round, s          | / a |")
    assert set(line) <= set("| -")
    assert [len(one) for one in body] == [len(head)] * 2


def test_an_environment_is_made_once_for_each_requirements(tmp_path: Path) -> None:
    made = tmp_path / P2PFL.name / DONE
    made.parent.mkdir()
    made.write_text(P2PFL.requirements.read_text("utf-8"), "utf-8")
    assert interpreter(tmp_path, P2PFL) == tmp_path / "p2pfl/bin/python"


def test_every_rival_is_pinned_to_the_version_that_is_named() -> None:
    for rival in (P2PFL, HIVEMIND, FLOWER):
        lines = rival.requirements.read_text("utf-8").splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert all("==" in line for line in pins)
        assert pins[0].endswith(f"=={rival.version}")


def test_what_cannot_be_installed_is_a_row_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(folder: Path, rival: object) -> Path:
        raise InstallError("p2pfl 0.4.4 could not be installed: no such version")

    monkeypatch.setattr(program, "_interpreter", refuse)
    monkeypatch.setattr(program, "FOLDER", tmp_path)
    words = ["--turns", "1", "--only", "p2pfl", "--environments", str(tmp_path), "--format", "json"]
    assert program.main(words) == 1
    (found,) = json.loads(capsys.readouterr().out)["rows"]
    assert found["reason"] == "p2pfl 0.4.4 could not be installed: no such version"
