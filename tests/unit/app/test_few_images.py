"""A class of fewer images than privacy.least_images: no member hears of it from policy gda.

Method: as in test_canary.py, whose channels to members are searched here. The class has a planted
name, and three images; a second site that tells all classes shows that the search finds the name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.unit.app import test_canary as canary
from tests.unit.app.canary import ASKED, CLASS, found, keyed, running

GUARD_S = 180.0
SENT = ("frames", "what a peer keeps")
CHANNELS = (*SENT, "answers to frames", *ASKED, "page", "metrics")
COMMON = (
    *("policy.name=gda", "rounds.max=2", "rounds.min_interval_s=0", "rounds.deadline_s=100"),
    *("data.shots=0", "membership.preset=local"),
)
COUNTS = {"cyst": 8, "lesion": 8, CLASS.decode(): 3}


def drawn(folder: Path) -> Path:
    noise = np.random.default_rng(1)
    for name, count in COUNTS.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = noise.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the setting of a cache that the tests share: public images are encoded once."""
    return f"cache.folder={tmp_path_factory.mktemp('cache')}"


@asynccontextmanager
async def sites(folder: Path, cache: str, *flags: str) -> AsyncIterator[canary.Site]:
    """Run node a with the few images, and node b, until both have finished."""
    root = drawn(folder / "images")
    keys = keyed(folder, "a", "b")
    both = (*COMMON, cache)
    own = (f"data.path={root}", "data.test=0", "page.listen=127.0.0.1:0", *flags)
    theirs = ("data.classes=[barrel, beaver]", "data.shots=5", "data.test=0", "page.listen=null")
    start_a = running(folder, "a", *both, *own)
    async with start_a as a, running(folder, "b", *both, *theirs) as b:
        async with asyncio.timeout(GUARD_S):
            await asyncio.gather(a.until("life.finished"), b.until("life.finished"))
        yield canary.Site(a, b, folder, keys)


async def test_a_class_of_few_images_is_in_nothing_that_members_get(
    tmp_path: Path, cache: str
) -> None:
    async with sites(tmp_path, cache) as site:
        for channel in CHANNELS:
            async with asyncio.timeout(GUARD_S):
                content = await canary.CHANNELS[channel](site)
            assert len(content) > 30, channel
            assert found(content) == set(), channel
        told = site.b.driver.kernel.policy.state().tensors
        assert set(told.classes) == {"barrel", "beaver", "cyst", "lesion"}
        assert told["rows/a"][:, 1].sum() == COUNTS["cyst"] + COUNTS["lesion"]
        few = "has fewer than 5 training images: its mean is not sent (privacy.least_images)."
        assert site.a.learner.unsent == f"1 of 3 classes ({CLASS.decode()}) {few}"
        async with site.client("a") as client:  # its operator knows the class
            assert CLASS in await ASKED["status"](client, site.at)


async def test_the_search_finds_a_class_that_is_told(tmp_path: Path, cache: str) -> None:
    async with sites(tmp_path, cache, "privacy.least_images=3") as site:
        for channel in SENT:
            async with asyncio.timeout(GUARD_S):
                assert found(await canary.CHANNELS[channel](site)) == {CLASS}
