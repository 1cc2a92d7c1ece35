"""What a daemon makes of a frame before the kernel sees it: quota, layout, identity, and points."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.core.reputation import Tolerance
from fednode.core.settings import LimitSettings
from fednode.identity.roster import Roster
from fednode.runtime import driver
from fednode.wire import codec
from fednode.wire.codec import Ack
from tests.contract.memory_transport import Hub
from tests.unit.identity.people import SmallMesh
from tests.unit.runtime.daemons import Daemon, running
from tests.unit.wire.samples import built, changed, metadata, split

MESH = SmallMesh()


PATIENT = Tolerance(budget=3, quarantine_s=600.0)
HURRIED = LimitSettings(messages_s=0.1)
"""In its burst of ten seconds one message fits."""


def running_a(
    folder: Path, *peers: str, limits: LimitSettings | None = None
) -> AbstractAsyncContextManager[Daemon]:
    """Run node a of a mesh with keys, which knows its peers."""
    members = MESH.roster("a", *peers)
    return running(Hub(), folder, "a", peers, 0, limits=limits, tolerance=PATIENT, members=members)


@pytest.fixture
async def a(tmp_path: Path) -> AsyncIterator[Daemon]:
    async with running_a(tmp_path, "b") as node:
        yield node


def hello(node: Daemon, sender: str = "b") -> bytes:
    message = node.driver.kernel.context.message(0, "hello")
    return codec.encode(replace(message, sender=sender), "float32")


async def answered(node: Daemon, frame: bytes, caller: str = MESH.id("b")) -> Ack:
    return codec.decode_ack(await node.driver.on_frame(frame, caller))


def state(node: Daemon) -> str:
    """Return the state of b, of which "suspect" depends on the machine's load."""
    return node.driver.kernel.view().peers[0].state.replace("suspect", "alive")


async def test_a_frame_within_the_quota_comes_in_and_one_beyond_it_does_not(
    tmp_path: Path,
) -> None:
    async with running_a(tmp_path, "b", limits=HURRIED) as a:
        assert await answered(a, hello(a)) == Ack("ok", "")
        over = await answered(a, hello(a))
        assert (over.code, "slow down" in over.detail) == ("busy", True)
        assert state(a) == "alive"


async def test_a_caller_s_name_is_looked_up_once_a_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    name_of = Roster.name_of

    def counted(self: Roster, id: str) -> str:
        asked.append(id)
        return name_of(self, id)

    monkeypatch.setattr(Roster, "name_of", counted)
    async with running_a(tmp_path, "b", limits=HURRIED) as a:
        for frame, code in ((hello(a), "ok"), (hello(a), "busy")):
            asked.clear()
            assert (await answered(a, frame)).code == code
            assert asked == [MESH.id("b")]


async def test_a_caller_speaks_in_its_own_name_alone(a: Daemon) -> None:
    for caller, said in (
        (MESH.id("x"), "belongs to nobody in this mesh"),
        (MESH.id("a"), "the key of 'a' cannot speak for 'b'"),
    ):
        refused = await answered(a, hello(a), caller)
        assert (refused.code, said in refused.detail) == ("refused", True)
    assert a.driver.refusals.counts == {"identity": 2}
    assert state(a) != "alive"
    assert (await answered(a, hello(a))).code == "ok"
    assert state(a) == "alive"


@pytest.mark.parametrize("fault", ["frame", "identity"])
async def test_a_frame_that_no_correct_node_sends_is_a_fault_of_its_caller(
    a: Daemon, fault: str
) -> None:
    assert (await answered(a, hello(a))).code == "ok"
    bad = {"frame": b"no frame", "identity": hello(a, "c")}[fault]
    for _ in range(2):
        assert (await answered(a, bad)).code == {"frame": "invalid"}.get(fault, "refused")
    assert (await answered(a, hello(a))).code == "ok"  # two faults are within the budget
    await answered(a, bad)
    assert (await answered(a, hello(a))).code == "refused"
    assert state(a) == "quarantined"
    assert a.driver.refusals.counts == {fault: 3}


async def test_a_frame_of_a_stranger_is_nobody_s_fault(a: Daemon) -> None:
    for _ in range(5):
        await answered(a, b"no frame", MESH.id("x"))
    assert (await answered(a, hello(a))).code == "ok"
    assert state(a) == "alive"


async def test_a_flood_costs_its_caller_a_point_for_every_so_many_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "FLOOD", 5)
    other = MESH.id("c")
    async with running_a(tmp_path, "b", "c", limits=HURRIED) as a:
        assert (await answered(a, hello(a))).code == "ok"
        for _ in range(14):
            assert (await answered(a, hello(a))).code == "busy"
        assert a.driver.refusals.counts == {"flood": 2}
        assert state(a) == "alive"
        await answered(a, hello(a))
        # The kernel answers another peer after it has counted the flood's point.
        assert (await answered(a, hello(a, "c"), other)).code == "ok"
        assert state(a) == "quarantined"


@pytest.mark.parametrize(
    ("version", "word", "said"),
    [
        (4, "alive", "wire version 4 and this node speaks 3; update fednode on this node"),
        (2, "alive", "wire version 2 and this node speaks 3; update fednode on the other node"),
        (3, "asleep", "'c' is said to be 'asleep': the sender's wire version 3 may know that"),
    ],
)
async def test_what_another_version_says_is_refused_and_costs_no_points(
    a: Daemon, version: int, word: str, said: str
) -> None:
    for _ in range(5):  # more than twice what ends in a quarantine
        frame = changed(hello(a), metadata=metadata((), ["c", word, 1, "", "", b""]))
        refused = await answered(a, built(*split(frame), version))
        assert (refused.code, said in refused.detail) == ("refused", True)
    assert (await answered(a, hello(a))).code == "ok", "once it was updated"
    assert state(a) == "alive"
    assert a.driver.refusals.counts == {"version": 5}
