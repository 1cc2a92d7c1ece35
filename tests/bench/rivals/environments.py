"""A virtual environment for each rival, made once from its pinned requirements."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent
DONE: Final = "made-from.txt"
"""Lies in a finished environment, with the requirements it was made from."""
INSTALL_LIMIT_S: Final = 1200.0
REUSE: Final = "reuse.pth"


@dataclass(frozen=True, slots=True)
class Rival:
    """A system to measure. reuse: its environment also sees the packages of this interpreter.

    torch is 5 GB, so it is not installed again for a rival that works with the installed one.
    """

    name: str
    version: str
    reuse: bool = False

    @property
    def requirements(self) -> Path:
        """The file with the pinned versions."""
        return FOLDER / f"requirements-{self.name}.txt"


P2PFL: Final = Rival("p2pfl", "0.4.4")
HIVEMIND: Final = Rival("hivemind", "1.1.12", reuse=True)
FLOWER: Final = Rival("flower", "1.42.0")


class InstallError(Exception):
    """The environment of a rival could not be made."""


def default_folder() -> Path:
    """Return the folder for environments below the user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "fednode-rivals"


def interpreter(folder: Path, rival: Rival, limit_s: float = INSTALL_LIMIT_S) -> Path:
    """Return the rival's interpreter; make its environment first if the requirements are new.

    limit_s: seconds that pip may take. Raises InstallError with pip's last line.
    """
    home = folder / rival.name
    python, done = home / "bin/python", home / DONE
    wanted = rival.requirements.read_text("utf-8")
    if done.is_file() and done.read_text("utf-8") == wanted:
        return python
    _run([sys.executable, "-m", "venv", str(home)], rival, limit_s)
    if rival.reuse:
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        own = home / "lib" / version / "site-packages"
        (own / REUSE).write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*install, "-r", str(rival.requirements)], rival, limit_s)
    done.write_text(wanted, "utf-8")
    return python


def _run(command: list[str], rival: Rival, limit_s: float) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise InstallError(
            f"The installation of {rival.name} {rival.version} took longer than {limit_s:.0f} s."
        ) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it printed no error"]
        raise InstallError(f"{rival.name} {rival.version} could not be installed: {lines[-1]}")
