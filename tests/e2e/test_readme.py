"""README's quick start, its commands as they stand, with images of one's own.

Method: each line of the block is typed in turn, with a HOME of its own: `start` is a process, and
the other commands run in this process, which has torch. The recommended method has no last round,
so the reader looks when every node has merged its first round, and stops the nodes at the end.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.learn.cache import cache_of
from fednode.learn.features import Features
from fednode.learn.public import public_covariance
from fednode.learn.settings import CacheSettings
from fednode_bootstrap.daemon import Daemon, start_server, stop
from tests.contract.faults import pause
from tests.daemons import GUARD_S, start
from tests.unit.commands.run import Fednode
from tests.unit.commands.tuned import draw

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.2


def quick_start() -> list[list[str]]:
    """Return the words of each command under "Your own images"."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    after = text[text.index("## Your own images") :]
    fence = next(one for one in MarkdownIt().parse(after) if one.type == "fence")
    return [shlex.split(line, comments=True) for line in fence.content.splitlines()]


def encode_public_images() -> None:
    """Encode the public images into this HOME's cache once, which each node would do."""
    features = Features(clip.load(ModelSettings()), cache_of(CacheSettings()))
    public_covariance(features, 1, (), lambda: False)


async def adopted(daemon: Daemon) -> None:
    """Read a node's log until it has adopted a round."""
    async with asyncio.timeout(GUARD_S):
        while "round.adopted" not in daemon.log.read_text():
            assert daemon.running, daemon.log.read_text()
            await pause(POLL_S)


@pytest.fixture
def forks_with_torch() -> Iterator[None]:
    """Let daemons be forks of a process that has torch and the model; other tests need neither."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    start_server(None, ())
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("forks_with_torch")
async def test_the_quick_start_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDNODE_PAGE__LISTEN", "null")
    monkeypatch.setenv("FEDNODE_ROUNDS__MIN_INTERVAL_S", "5")  # for nothing is read of later rounds
    monkeypatch.chdir(tmp_path)
    fednode, daemons, shown = Fednode(capsys), list[Daemon](), dict[str, str]()
    for folder in ("images", "b", "c"):
        draw(tmp_path / folder, 12)
    encode_public_images()
    lines = quick_start()
    assert len(lines) > 6
    try:
        for line in lines:
            words = [re.sub(r"/where/(\w)/has/its/images", rf"{tmp_path}/\1", one) for one in line]
            if words[0] == ".":
                continue  # the environment is this one
            if words[0] == "cd":
                monkeypatch.chdir(words[1])
                shutil.copy(tmp_path / "images/lemon/1.png", "photo.jpg")
            elif words[1] == "start":
                log = tmp_path / f"{len(daemons)}.log"
                daemons.append(Daemon(log.stem, words[1:], log, "tests.few_public_images"))
                await start(daemons[-1])
            else:
                if words[1] == "status":
                    assert len(daemons) == len("abc")
                    for one in daemons:
                        await adopted(one)
                code = await asyncio.to_thread(fednode, *words[1:])
                assert code == 0, f"{line}\n{fednode.out}{fednode.err}"
                shown[words[1]] = fednode.out
    finally:
        await stop(daemons, 10.0)
    assert "Nothing is wrong." in shown["check"]
    assert len(re.findall(r"running +\d+ +(\d+)/\1 ", shown["status"])) == 3, shown["status"]
    assert "no answer" not in shown["status"]
    assert "zero-shot" in shown["eval"]
    assert shown["predict"].startswith("photo.jpg: lemon")
