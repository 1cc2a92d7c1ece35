"""The commands of compose.yaml, compose.relay.yaml and the image's health check, run as they are.

Only places differ: folders of a temporary one for those of a container, and free ports of this
machine for names of services. tests/unit/test_deploy.py reads what else the files say.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from fednode.transports.ports import free_ports
from tests.contract.faults import pause
from tests.unit.test_deploy import HEALTH, IMAGE_COMMAND, ROOT

pytestmark = pytest.mark.e2e
# A bound for a test that hangs, not a measurement.
GUARD_S = 180.0
IMAGE = dict(
    re.findall(r"(\w+)=(\S+)", (ROOT / "bootstrap/Dockerfile").read_text().split("\nENV PATH")[-1])
)


class Machine:
    """What a compose file's containers are, as processes of this machine."""

    def __init__(self, file: str, folder: Path) -> None:
        self.folder = folder
        self.services = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["services"]
        ports = free_ports(3)
        self._places = {
            "0.0.0.0": "127.0.0.1",
            "relay:7100": f"127.0.0.1:{ports[0]}",
            '"0.0.0.0:7100"': f"127.0.0.1:{ports[0]}",
            **{f"node-{at}:7100": f"127.0.0.{at}:{ports[1]}" for at in range(1, 6)},
            ":7100": f":{ports[0 if 'relay' in self.services else 1]}",
            ":8080": f":{ports[2]}",
            "/etc/fednode/init.sh": str(ROOT / "configs/compose/init.sh"),
        }
        self._script = (ROOT / "configs/compose/init.sh").read_text(encoding="utf-8")

    def here(self, text: str, volumes: dict[str, str] | None = None) -> str:
        """Return a text of the files with places of this machine."""
        for place in sorted(volumes or {}, key=len, reverse=True):
            text = re.sub(rf"^{place}(?=/|$)", str(self.folder / (volumes or {})[place]), text)
        for place, at in self._places.items():
            text = text.replace(place, at)
        return text

    def program(self, service: dict[str, Any], volumes: dict[str, str]) -> tuple[str, ...]:
        """Return the words of a service; the script's own words lead to this machine's folders."""
        words = tuple(service.get("command", IMAGE_COMMAND))
        if "entrypoint" not in service:
            return ("fednode", *words)
        text = self._script
        for place in ("/nodes", "/watch"):
            text = text.replace(f"{place}", str(self.folder / place.strip("/")))
        for place, volume in volumes.items():
            if place.startswith("/nodes/"):
                at = self.folder / place.strip("/")
                at.parent.mkdir(exist_ok=True)
                at.symlink_to(self.folder / volume)
        script = self.folder / "init.sh"
        script.write_text(text, encoding="utf-8")
        return ("sh", str(script), *words)

    @contextmanager
    def container(self, name: str) -> Iterator[Any]:
        """Run a service until the block ends; yields a function that runs a command beside it."""
        service = self.services[name]
        volumes = {
            place: source
            for source, place, *_ in (line.split(":") for line in service["volumes"])
            if not source.startswith(".")
        }
        for volume in volumes.values():
            (self.folder / volume).mkdir(exist_ok=True)
        own = self.folder / volumes["/state"]
        if any("node.yaml" in line for line in service["volumes"]):
            (own / "node.yaml").write_text((ROOT / "configs/demo/node.yaml").read_text("utf-8"))
        given = IMAGE | service.get("environment", {})
        environment = {
            key: self.here(value, volumes)
            for key, value in given.items()
            if key.startswith("FEDNODE_") or key == "HOME"
        }
        environment = {
            **os.environ,
            "HOME": str(own),
            "PYTHONPATH": f"{ROOT / 'node'}:{ROOT / 'bootstrap'}",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **environment,
        }

        def run(*words: str, **more: Any) -> subprocess.Popen[str]:
            words = tuple(self.here(word, volumes) for word in words)
            return subprocess.Popen(words, cwd=own, env=environment, text=True, **more)

        with (self.folder / f"{name}.log").open("w") as log:
            process = run(*self.program(service, volumes), stdout=log, stderr=log)
            try:
                yield process, run
            finally:
                process.terminate()
                process.wait(GUARD_S)


def words_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code and the output of a command."""
    out, _ = process.communicate(timeout=GUARD_S)
    return process.returncode, out


@pytest.mark.parametrize(
    "file", ["compose.yaml", pytest.param("compose.relay.yaml", marks=pytest.mark.slow)]
)
async def test_a_node_is_healthy_by_the_images_own_check(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDNODE_TUNING__KIND", "closed-form")
    machine = Machine(file, tmp_path)
    beside = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with ExitStack() as stack:
        with machine.container("init") as (made, _):
            assert made.wait(GUARD_S) == 0, (tmp_path / "init.log").read_text()
        if "relay" in machine.services:
            stack.enter_context(machine.container("relay"))
        node, run = stack.enter_context(machine.container("node-1"))
        async with asyncio.timeout(GUARD_S):
            while words_of(run(*HEALTH, **beside))[0]:
                assert node.poll() is None, (tmp_path / "node-1.log").read_text()
                await pause(1.0)  # each look is a process
        code, said = words_of(run("fednode", "status", "node-1", **beside))
        assert (code, "node-1" in said) == (0, True), said
        node.terminate()
        assert node.wait(GUARD_S) == 0
        assert words_of(run(*HEALTH, **beside))[0] == 1  # nobody answers
