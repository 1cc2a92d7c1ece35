"""Run `fednode` in this process as the command line does, and look at what a user would see."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fednode.cli import main
from fednode.errors import FAULT_CODES, Unreachable

if TYPE_CHECKING:
    from fednode.app.plan import NodePlan

PEERS = """\
mesh: clinic
insecure: true
peers:
  - {name: a, address: "127.0.0.1:7191"}
  - {name: b, address: "127.0.0.1:7192"}
"""


def planned(folder: Path, *flags: str, name: str = "a") -> NodePlan:
    """Return the plan of a node of PEERS, whose state directory lies in a folder."""
    from fednode.app.plan import make

    (folder / "peers.yaml").write_text(PEERS)
    return make(folder / "peers.yaml", None, name, flags, folder / "state")


class Fednode:
    """The command; `out` and `err` are of the last call."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: str | Path) -> int:
        """Return the exit code."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        self.out, self.err = self._capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code

    async def types(self, *words: str | Path, code: int = 0) -> str:
        """Run a command that may run a loop of its own; return what it prints."""
        assert await asyncio.to_thread(self, *words) == code, self.err
        return self.out.strip()

    def fault(self, *words: str | Path) -> str:
        """Return the one sentence of a call that ends with the code of a fault."""
        assert self(*words) in {*FAULT_CODES, Unreachable.exit_code}
        assert "Traceback" not in self.err
        assert self.err.startswith("fednode: "), self.err
        return self.err.removeprefix("fednode: ").strip()
