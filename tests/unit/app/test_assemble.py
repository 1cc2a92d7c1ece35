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
from fednode.app.plan import NodePlan, make
from fednode.errors import StateError
from fednode.learn import build
from fednode.learn.closed_form import ClosedFormLearner
from fednode.learn.learner import Learner
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.runtime.driver import Driver
from fednode.storage.store import Store
from tests.unit.commands.run import PEERS


def quiet_plan(folder: Path, *flags: str) -> NodePlan:
    """Return the plan of a node that is alone and shows no page."""
    peers = folder / "peers.yaml"
    peers.write_text(PEERS)
    plan = make(peers, None, "a", ("page.listen=null", *flags), folder / "state")
    return replace(plan, peers=replace(plan.peers, peers=plan.peers.peers[:1]))


async def test_a_start_parses_the_policys_settings_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the files to the running driver: every part is handed what was parsed first."""
    parsed = list[ZeroDFLConfig]()
    check = ZeroDFLConfig.__post_init__
    given = list[object]()

    def parses(config: ZeroDFLConfig) -> None:
        check(config)
        parsed.append(config)

    def learner(*parts: object) -> ClosedFormLearner:
        given.extend(parts)
        return ClosedFormLearner("a", rows=4)

    async def ends(driver: Driver) -> None:
        given.append(driver)

    monkeypatch.setattr(ZeroDFLConfig, "__post_init__", parses)
    monkeypatch.setattr(build, "build", learner)  # loading images and a model takes seconds
    monkeypatch.setattr(Driver, "run", ends)
    flags = ("policy.recipients=2", f"cache.folder={tmp_path / 'cache'}")
    plan = quiet_plan(tmp_path, *flags)
    await assemble.live(plan, Store(plan.state))
    assert isinstance(given[-1], Driver)
    assert parsed[0] in given
    assert len(parsed) == 1


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


async def test_a_state_directory_of_other_settings_is_refused(tmp_path: Path) -> None:
    plan = quiet_plan(tmp_path, "tuning.kind=closed-form", "policy.recipients=2")
    store = Store(plan.state)
    store.bind({"policy.name": "promptfl"})
    with pytest.raises(StateError, match=r"was made with policy\.name promptfl"):
        await assemble.live(plan, store)


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
