"""A node from its plan to its running driver."""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fednode.app import assemble
from fednode.app.baseline import COMPARISON, keep_comparison
from fednode.app.plan import NodePlan
from fednode.core.types import PolicyState, Snapshot
from fednode.errors import StateError
from fednode.learn.learner import Learner
from fednode.learn.privacy import Privacy
from fednode.learn.quadratic import QuadraticLearner
from fednode.runtime.driver import Driver
from fednode.storage.store import Store
from tests.unit.commands.run import planned
from tests.unit.storage.stored import read_snapshot


def quiet_plan(folder: Path, *flags: str) -> NodePlan:
    """Return the plan of a node that is alone and shows no page."""
    plan = planned(folder, "page.listen=null", *flags)
    return replace(plan, peers=replace(plan.peers, peers=plan.peers.peers[:1]))


async def test_nothing_leaves_a_node_that_is_not_clipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers = list[Any]()

    async def ends(driver: Driver) -> None:
        drivers.append(driver)

    monkeypatch.setattr(Driver, "run", ends)
    plan = quiet_plan(tmp_path, "tuning.kind=closed-form")
    await assemble.live(plan, Store(plan.state))
    learning = drivers[0]._worker.learning
    assert learning.release.__func__ is Privacy.release
    assert learning.spend.__func__ is Privacy.missed


async def test_a_node_whose_images_cannot_be_loaded_ends_and_gives_its_directory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object, **more: object) -> Learner:
        raise StateError("no image can be read")

    plan = quiet_plan(tmp_path, "tuning.kind=closed-form")
    monkeypatch.setattr(assemble, "learner_of", fails)
    with pytest.raises(StateError, match="no image can be read"):
        await assemble.live(plan, Store(plan.state))
    Store(plan.state).close()  # the directory is not locked


async def test_a_state_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    plan = quiet_plan(tmp_path, "tuning.kind=closed-form", "policy.recipients=2")
    store = Store(plan.state)
    store.bind({"name": "b", "mesh": plan.peers.mesh})
    with pytest.raises(StateError, match=r"was made with name b, and this node has name a"):
        await assemble.live(plan, store)


async def test_another_policy_begins_a_new_run_in_the_same_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """More rounds let the run go on."""
    ended, learned = list[int](), QuadraticLearner("a").initial(7)

    async def ends(driver: Driver) -> None:
        ended.append(driver.view().round)
        driver._store.commit(Snapshot(PolicyState(4, learned, learned), {}))

    monkeypatch.setattr(Driver, "run", ends)
    caplog.set_level(logging.WARNING)

    async def start(*flags: str) -> NodePlan:
        plan = quiet_plan(tmp_path, "tuning.kind=closed-form", *flags)
        await assemble.live(plan, Store(plan.state))
        return plan

    plan = await start("policy.name=promptfl")
    keep_comparison(plan.state, ["round 4: mesh 51.5"])
    await start("policy.name=promptfl", "rounds.max=70")
    assert not caplog.messages
    assert "51.5" in (plan.state / COMPARISON).read_text()
    await start("policy.name=fedpgp")
    assert "51.5" not in (plan.state / COMPARISON).read_text(), "it was said of the run before"
    assert ended == [0, 4, 0]
    (said,) = caplog.messages
    assert said.startswith("the rounds begin anew, because policy.name was promptfl and is fedpgp")
    assert read_snapshot(plan.state / "runs" / "1").policy.round == 4
    assert "promptfl" in (plan.state / "runs" / "1" / "settings.yaml").read_text()
    assert "fedpgp" in (plan.state / "settings.yaml").read_text()


async def test_the_first_ctrl_c_stops_and_the_second_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes = list[int]()
    takes = dict[int, Any]()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(
        loop,
        "add_signal_handler",
        lambda number, *take: takes.update({number: take}),
        raising=False,
    )
    monkeypatch.setattr("os._exit", codes.append)
    caplog.set_level(logging.INFO, "fednode")
    stop = assemble._stopped_by_signals()

    def send(number: signal.Signals) -> None:
        take, *words = takes[number]
        take(*words)

    send(signal.SIGTERM)
    assert stop.is_set()
    send(signal.SIGTERM)
    assert codes == [], "what manages a node may send SIGTERM twice"
    send(signal.SIGINT)
    assert codes == [130]
    assert caplog.messages == [assemble.STOPPING, assemble.AT_ONCE]


async def test_a_stop_ends_the_wait_for_work_that_never_ends() -> None:
    stop: asyncio.Event = asyncio.Event()
    stop.set()
    endless: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert not await assemble._unless(stop, endless)
    assert endless.cancelled()
