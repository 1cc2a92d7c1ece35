"""The command itself: what it lists, how it ends, and that it starts without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click
import pytest
import uvloop
from click.shell_completion import BashComplete

from fednode import __version__, cli
from fednode.errors import DataError, Refused

# Every command of the README and the guides.
EXPECTED = {
    *("init", "invite", "join", "sponsor", "remove", "leave", "reset", "settings"),
    *("check", "start", "status", "logs", "pause", "resume", "relay"),
    *("eval", "predict", "explain", "export", "import"),
    *("experiment", "track", "simulate", "mesh"),
}

NAMED = f"fednode, version {__version__}"


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(list(words))
    out, err = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, out, err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ended(capsys, "--help")
    assert code == 0
    assert set(cli.COMMANDS) == EXPECTED
    listed = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert sorted(set(listed) & EXPECTED) == sorted(EXPECTED)
    assert sorted(sum(cli.GROUPS.values(), ())) == sorted(EXPECTED), "each once"


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ended(capsys, name, "--help")
    assert code == 0
    assert out.startswith(f"Usage: fednode {name}")


def test_short_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, "-v") == ended(capsys, "--version") == (0, f"{NAMED}\n", "")
    assert ended(capsys, "-h") == ended(capsys, "--help")
    for words in (["start"], ["settings"], ["settings", "pull"]):
        code, out, _ = ended(capsys, *words, "-h")
        assert (code, out) == (0, ended(capsys, *words, "--help")[1])


def complete(words: list[str], incomplete: str) -> list[tuple[str, str]]:
    asked = BashComplete(cli.group, {}, "fednode", "_FEDNODE_COMPLETE")
    return [(one.type, one.value) for one in asked.get_completions(words, incomplete)]


def test_completion_of_commands_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("fednode.cli.importlib")
    assert {name for _, name in complete([], "")} == EXPECTED
    assert complete([], "st") == [("plain", "start"), ("plain", "status")]
    assert complete([], "--ver") == [("plain", "--version")]


def test_completion_of_options_choices_and_paths() -> None:
    assert complete(["check"], "--sch") == [("plain", "--schema")]
    assert complete(["check", "--schema"], "p") == [("plain", "peers")]
    assert complete(["start", "--config"], "no") == [("file", "no")]
    assert complete(["settings"], "p") == [("plain", "pull")]


def test_a_shell_gets_a_script() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "fednode.cli"],
        env=os.environ | {"_FEDNODE_COMPLETE": "zsh_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_FEDNODE_COMPLETE=zsh_complete" in ran.stdout


def test_an_unknown_command_or_option_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["strat"], ["status", "--jsn"]):
        code, _, err = ended(capsys, *words)
        assert code == 2
        assert "No such" in err
    assert "Did you mean 'start'?" in ended(capsys, "strat")[2]
    assert "Did you mean" not in ended(capsys, "xyz")[2]


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (DataError("no images."), 3, "fednode: no images."),
        (Refused("not you."), 6, "fednode: not you."),
        (KeyboardInterrupt(), 130, "fednode: stopped by Ctrl-C.\n"),
        (KeyboardInterrupt("2 are done."), 130, "fednode: stopped by Ctrl-C. 2 are done.\n"),
        (RuntimeError("a defect"), 70, "a defect of fednode itself (RuntimeError: a defect)"),
    ],
)
def test_every_fault_is_a_sentence_and_an_exit_code(
    fault: BaseException,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    @click.command()
    def failing() -> None:
        raise fault

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("fednode.commands.init.init", failing)
    found, _, err = ended(capsys, "init")
    assert found == code
    assert said in err
    assert "Traceback" not in err
    reports = list(tmp_path.glob("fednode-crash-*.txt"))
    assert len(reports) == isinstance(fault, RuntimeError)
    assert all("Traceback" in path.read_text() for path in reports)


LOADED = """
import sys
from fednode import cli

def run(*words):
    try:
        cli.main([*words])
    except SystemExit:
        pass

def require_none(*names):
    loaded = [name for name in sys.modules if name.startswith(names)]
    assert not loaded, loaded

run("--help")
run("status", "127.0.0.1:1")
for name, (place, _) in cli.COMMANDS.items():
    if not place.startswith("fednode.lab"):
        run(name, "--help")
require_none("pydantic", "torch", "open_clip", "fednode.lab")
run("start", "--peers", "none.yaml")
run("check", "--set", "data.path=/missing")
run("eval", "--state", "/missing")
run("predict", "--state", "/gone", "x.png")
import fednode.policies.zerodfl, fednode.runtime.driver
require_none("torch", "open_clip", "fednode.lab")
run("experiment", "zzz.yaml")
require_none("torch")
"""


def test_commands_load_only_what_they_need(tmp_path: Path) -> None:
    """One process loads more and more: no torch for what needs no model, never the laboratory.

    tests/test_tidy.py looks at the imports of all modules.
    """
    ran = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Run a node:" in ran.stdout
    assert "Nobody answers at 127.0.0.1:1" in ran.stderr
    assert "If its mesh has keys, add --peers or --state." in ran.stderr
    assert "fault: The data folder '/missing' does not exist" in ran.stdout
    for said in ("none.yaml", "/gone", "There is no file zzz.yaml"):
        assert said in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("start", "--name", "a", "--state", "a", "--peers", "peers.yaml"),
        ("relay", "--state", "r", "--peers", "peers.yaml"),
    ],
)
def test_a_loop_that_listens_does_not_sleep_after_each_connection_it_takes(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = "mesh: m\ninsecure: true\npeers:\n  - {name: a, address: '127.0.0.1:7100'}\n"
    (tmp_path / "peers.yaml").write_text(peers)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_TCP_SINGLE_ACCEPT", "")
    monkeypatch.delenv("UV_TCP_SINGLE_ACCEPT")
    seen = list[str | None]()

    def run(work: Coroutine[Any, Any, Any]) -> None:
        work.close()
        seen.append(os.environ.get("UV_TCP_SINGLE_ACCEPT"))

    monkeypatch.setattr(uvloop, "run", run)
    with pytest.raises(SystemExit) as ended:
        cli.main([*words])
    assert (ended.value.code, seen) == (0, ["0"])
