"""A class of fewer images than privacy.least_images: no member hears of it from policy gda.

Method: as in test_canary.py, whose channels to members are searched here. The class has a planted
name, and three images; the names of the other classes are found where they are sent.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
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


async def test_a_class_of_few_images_is_in_nothing_that_members_get(tmp_path: Path) -> None:
    root, keys = drawn(tmp_path / "images"), keyed(tmp_path, "a", "b")
    both = (*COMMON, f"cache.folder={tmp_path / 'cache'}", "data.test=0")
    own = (f"data.path={root}", "page.listen=127.0.0.1:0")
    theirs = ("data.classes=[barrel, beaver]", "data.shots=5", "page.listen=null")
    start_a = running(tmp_path, "a", *both, *own)
    async with start_a as a, running(tmp_path, "b", *both, *theirs) as b:
        async with asyncio.timeout(GUARD_S):
            await asyncio.gather(a.until("life.finished"), b.until("life.finished"))
        site = canary.Site(a, b, tmp_path, keys)
        for channel in CHANNELS:
            async with asyncio.timeout(GUARD_S):
                content = await canary.CHANNELS[channel][0](site)
            assert len(content) > 30, channel
            assert found(content) == set(), channel
            assert channel not in SENT or b"lesion" in content, "the search finds what is sent"
        told = b.driver.kernel.policy.state().tensors
        assert set(told.classes) == {"barrel", "beaver", "cyst", "lesion"}
        assert told["rows/a"][:, 1].sum() == COUNTS["cyst"] + COUNTS["lesion"]
        few = "has fewer than 5 training images: its mean is not sent (privacy.least_images)."
        assert a.learner.unsent == f"1 of 3 classes ({CLASS.decode()}) {few}"
        async with site.client("a") as client:  # its operator knows the class
            assert CLASS in await ASKED["status"](client, site.at)
