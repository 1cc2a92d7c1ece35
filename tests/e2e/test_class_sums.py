"""Policy gda in real processes: nodes that live hold equal sums, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import yaml

import fednode
from fednode.core.types import Tensors
from fednode.data.builtin import root
from fednode.errors import FednodeError
from fednode_bootstrap.daemon import Daemon
from tests.contract.faults import pause
from tests.daemons import GUARD_S, Nodes, start
from tests.unit.storage.stored import read_snapshot

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAMES = ("a", "b", "c", "d")
COMMON = 2
IMAGES = 6
NODE = "rows/"
SETTINGS = {
    "policy": {"name": "gda"},
    "privacy": {"least_images": 1},  # an image more is sent at once
    "rounds": {"min_interval_s": 0.5, "deadline_s": 5, "start": {"peers": 2}},
    "membership": {"preset": "local"},
    "tuning": {"threads": 1},
}


class Classes:
    """Folders of images: two classes that all nodes have, and two of each node alone."""

    def __init__(self, folder: Path) -> None:
        every = sorted(one.name for one in root().iterdir() if one.is_dir())
        self.names = every[: COMMON + 2 * len(NAMES)]
        self._folder = folder

    def of(self, node: str) -> list[str]:
        """Return the classes of a node."""
        at = COMMON + 2 * NAMES.index(node)
        return self.names[:COMMON] + self.names[at : at + 2]

    def write(self, node: str) -> Path:
        """Copy a node's images; each node has other images of the common classes."""
        place = NAMES.index(node)
        for name in self.of(node):
            images = sorted((root() / name).iterdir())
            first = IMAGES * place % max(1, len(images) - IMAGES)
            (self._folder / node / name).mkdir(parents=True)
            for image in images[first : first + IMAGES]:
                shutil.copy(image, self._folder / node / name)
        return self._folder / node

    def add(self, node: str) -> None:
        """Copy one more image into a common class of a node."""
        name = self.names[0]
        held = {one.name for one in (self._folder / node / name).iterdir()}
        fresh = next(one for one in sorted((root() / name).iterdir()) if one.name not in held)
        shutil.copy(fresh, self._folder / node / name)


def sums(folder: Path) -> Mapping[str, bytes]:
    """Return the statements of all senders in a state directory, as bytes with their names."""
    held: Tensors = read_snapshot(folder).policy.arrays
    named = json.dumps(held.classes).encode()
    return {name: named + one.tobytes() for name, one in held.items() if name.startswith(NODE)}


def images_of(folder: Path, node: str) -> int:
    """Return how many images a node has, as the state directory of some node says."""
    return int(read_snapshot(folder).policy.arrays[NODE + node][:, 1].sum())


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(2 * GUARD_S):
        while True:
            with contextlib.suppress(FednodeError, KeyError):
                if holds():
                    return
            await pause(0.1)


async def test_all_nodes_hold_equal_sums_after_a_crash_a_late_join_and_an_added_image(
    tmp_path: Path,
) -> None:
    classes = Classes(tmp_path / "images")
    nodes, config = Nodes(tmp_path, "abcd", tls=False), tmp_path / "node.yaml"
    config.write_text(yaml.safe_dump(SETTINGS))
    states = {name: tmp_path / name for name in NAMES}

    def runs(name: str) -> AbstractAsyncContextManager[Daemon]:
        images = f"data.path={classes.write(name)}"
        return nodes.running(name, "--config", str(config), "--set", images)

    def equal(*names: str, of: tuple[str, ...] = NAMES) -> bool:
        found = [sums(states[name]) for name in names]
        return set(found[0]) == {NODE + one for one in of} and all(one == found[0] for one in found)

    async with runs("a") as a, runs("b"), runs("c"):
        await until(lambda: equal(*"abc", of=("a", "b", "c")))
        a.signal(signal.SIGKILL)
        await a.ended()
        async with runs("d"):
            # Nobody says to d what a said, until a is back and says it.
            await until(lambda: equal(*"bc") and equal("d", of=("b", "c", "d")))
            more = images_of(states["b"], "b") + 1
            classes.add("b")
            await until(lambda: all(images_of(states[name], "b") == more for name in "bcd"))
            await start(a)
            await until(lambda: equal(*NAMES) and images_of(states["a"], "b") == more)
    assert equal(*NAMES)
    shown = {name: tmp_path / "images" / name / classes.of(name)[-1] for name in NAMES}
    images = [sorted(folder.iterdir())[0] for folder in shown.values()]
    expected = [folder.name.replace("_", " ") for folder in shown.values()]
    for name in NAMES:
        prompts = fednode.load(states[name])
        assert len(prompts.known) == len(classes.names)
        assert prompts.names(images, prompts.known) == expected, name
        assert prompts.answers(prompts.known).startswith(
            "this node classifies by the class means of the mesh"
        )
