"""README's quick start, its commands as they stand, with images of one's own.

Method: each line of the block is run in turn by a shell, `start` in the background, in a folder and
with a HOME of its own. The recommended method has no last round, so the reader looks when every
node has merged its first round, and stops the nodes at the end.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from fednode_bootstrap.process import Daemon
from tests.contract.faults import pause
from tests.unit.commands.tuned import draw

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
GUARD_S = 180.0
POLL_S = 0.2


def quick_start() -> list[str]:
    """Return the command lines under "Your own images"."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    after = text[text.index("## Your own images") :]
    fence = next(one for one in MarkdownIt().parse(after) if one.type == "fence")
    return [re.sub(r"\s+#.*", "", line) for line in fence.content.splitlines()]


def surroundings(home: Path) -> dict[str, str]:
    """Return an environment where `fednode` is this checkout's and HOME is empty."""
    programs = home / "bin"
    programs.mkdir()
    command = f'#!/bin/sh\nexec {sys.executable} -m fednode.cli "$@"\n'
    (programs / "fednode").write_text(command)
    (programs / "fednode").chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    code = os.pathsep.join(str(ROOT / part) for part in ("node", "bootstrap"))
    own = {"HOME": str(home), "PATH": path, "PYTHONPATH": code}
    return {**os.environ, **own, "FEDNODE_PAGE__LISTEN": "null"}


def run(line: str, folder: Path, environment: dict[str, str]) -> str:
    ended = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=GUARD_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


async def adopted(daemon: Daemon) -> None:
    """Read a node's log until it has adopted a round."""
    async with asyncio.timeout(GUARD_S):
        while "round.adopted" not in daemon.log.read_text():
            assert daemon.running, daemon.log.read_text()
            await pause(POLL_S)


async def test_the_quick_start_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = surroundings(tmp_path)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    folder, daemons, said = tmp_path, list[Daemon](), dict[str, str]()
    draw(tmp_path / "images", 12)
    for name in "bc":
        draw(tmp_path / name, 12)
    lines = quick_start()
    assert len(lines) > 6
    try:
        for line in lines:
            line = re.sub(r"/where/(\w)/has/its/images", str(tmp_path) + r"/\1", line)
            if line.startswith(". "):
                continue  # the environment is this one
            if line.startswith("cd "):
                folder = folder / line.removeprefix("cd ")
                shutil.copy(tmp_path / "images/lemon/1.png", folder / "photo.jpg")
            elif line.startswith("fednode start"):
                words = line.split()[1:]
                monkeypatch.chdir(folder)
                command = (sys.executable, "-m", "fednode_bootstrap.tether", "fednode.cli", *words)
                daemons.append(Daemon(f"n{len(daemons)}", command, folder / f"{len(daemons)}.log"))
                await daemons[-1].start()
            else:
                if line.startswith("fednode status"):
                    assert len(daemons) == len("abc")
                    for one in daemons:
                        await adopted(one)
                said[line.split()[1]] = run(line, folder, environment)
    finally:
        for one in daemons:
            await one.stop(10.0)
    assert "Nothing is wrong." in said["check"]
    assert len(re.findall(r"running +\d+ +(\d+)/\1 ", said["status"])) == 3, said["status"]
    assert "no answer" not in said["status"]
    assert "zero-shot" in said["eval"]
    assert said["predict"].startswith("photo.jpg: lemon")
