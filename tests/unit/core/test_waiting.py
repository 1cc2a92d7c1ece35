"""The wait before the first round: for whom, how long, and what people are told of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from fednode.core.events import (
    Commanded,
    Effect,
    Event,
    Record,
    SetTimer,
    Started,
    TimerFired,
    Tune,
)
from fednode.core.kernel import START, Kernel
from fednode.core.settings import StartSettings
from fednode.core.waiting import PEERS_MAX
from fednode.policies.local import Local, LocalConfig
from tests.unit.core.scenes import FACTS, PROMPTS, context, local
from tests.unit.core.test_kernel import hello


def made(names: str, remote: bool = False, grows: bool = False, **start: Any) -> Kernel:
    frame = replace(context("local", start=StartSettings(**start)), peers=tuple(names))
    frame = replace(frame, remote=remote, grows=grows)
    return Kernel(frame, Local.start(LocalConfig(), frame, PROMPTS), FACTS, anew=local)


def texts(effects: list[Effect]) -> list[str]:
    return [one.text for one in effects if isinstance(one, Record) and "start." in one.kind]


def step(kernel: Kernel, now: float, event: Event) -> list[Effect]:
    return list(kernel.step(now, event))


def test_by_default_all_known_peers_are_waited_for() -> None:
    kernel = made("bcd")
    effects = step(kernel, 5.0, Started())
    assert SetTimer(START, 120.0) in effects
    assert texts(effects) == ["round 1 waits for b, c, d (no answer), at most 120 s (rounds.start)"]
    assert (kernel.view().awaited, kernel.view().start_by) == ("b, c, d (no answer)", 125.0)
    for peer, left in (("b", "c, d (no answer)"), ("d", "c (no answer)")):
        step(kernel, 6.0, hello(peer, policy="local"))
        assert kernel.view().awaited == left
        assert kernel.view().life == "waiting"
    effects = step(kernel, 7.0, hello("c", policy="local"))
    assert [type(one) for one in effects if isinstance(one, Tune)] == [Tune]
    assert (kernel.view().awaited, kernel.view().life) == ("", "running")


def test_a_peer_that_does_not_answer_in_time_is_named() -> None:
    kernel = made("bc", timeout_s=40.0)
    step(kernel, 0.0, Started())
    step(kernel, 1.0, hello("b", policy="local"))
    effects = step(kernel, 40.0, TimerFired(START))
    assert texts(effects) == ["round 1 begins without c (no answer), after 40 s"]
    assert any(isinstance(one, Tune) for one in effects)


@pytest.mark.parametrize("adopted", [4, 5])
def test_a_node_that_starts_again_after_its_last_round_waits_for_nobody(adopted: int) -> None:
    frame = context("local", max=5, start=StartSettings())
    state = replace(Local.start(LocalConfig(), frame, PROMPTS).state(), round=adopted)
    kernel = Kernel(frame, Local.restore(LocalConfig(), frame, state), FACTS, anew=local)
    effects = step(kernel, 0.0, Started())
    waits = (
        ["round 5 waits for b, c (no answer), at most 120 s (rounds.start)"] if adopted == 4 else []
    )
    assert texts(effects) == waits
    assert (kernel.view().life, kernel.view().awaited) == (
        ("waiting", "b, c (no answer)") if waits else ("finished", "")
    )


def test_of_many_peers_eight_are_enough() -> None:
    kernel = made("bcdefghijkl")
    effects = step(kernel, 0.0, Started())
    assert texts(effects)[0].startswith(f"round 1 waits for {PEERS_MAX} of b, c, d, ")
    for peer in "bcdefgh":
        step(kernel, 1.0, hello(peer, policy="local"))
    assert kernel.view().awaited == "1 of i, j, k, l (no answer)"
    assert any(isinstance(one, Tune) for one in step(kernel, 1.0, hello("k", policy="local")))


@pytest.mark.parametrize(("peers", "begins"), [(0, True), (1, False)])
def test_the_number_may_be_set(peers: int, begins: bool) -> None:
    kernel = made("bc", peers=peers)
    effects = step(kernel, 0.0, Started())
    assert any(isinstance(one, Tune) for one in effects) == begins
    assert bool(texts(effects)) != begins


def test_a_node_without_peers_begins_at_once() -> None:
    effects = step(made(""), 0.0, Started())
    assert texts(effects) == []
    assert any(isinstance(one, Tune) for one in effects)


def timers(effects: list[Effect]) -> list[Effect]:
    return [one for one in effects if isinstance(one, SetTimer) and one.name == START]


def tuned(effects: list[Effect]) -> bool:
    return any(isinstance(one, Tune) for one in effects)


def test_for_peers_of_other_machines_the_wait_has_no_end_and_takes_all_of_them() -> None:
    kernel = made("bcdefghijkl", remote=True)
    effects = step(kernel, 0.0, Started())
    assert timers(effects) == []
    assert texts(effects)[0].endswith(" (no answer), without end (rounds.start)")
    for peer in "bcdefghijk":
        assert not tuned(step(kernel, 1.0, hello(peer, policy="local")))
    assert (kernel.view().awaited, kernel.view().start_by) == ("l (no answer)", math.inf)
    assert tuned(step(kernel, 1e6, hello("l", policy="local")))


@pytest.mark.parametrize("names", ["", "bcd"])
def test_in_a_mesh_that_grows_one_peer_is_enough_and_nobody_is_not(names: str) -> None:
    kernel = made(names, grows=True)
    assert not tuned(step(kernel, 0.0, Started()))
    wanted = "1 of b, c, d (no answer)" if names else "a peer to join"
    assert kernel.view().awaited == wanted
    if names:
        assert tuned(step(kernel, 1.0, hello("c", policy="local")))


def test_a_mesh_that_grows_waits_for_more_peers_than_it_knows() -> None:
    kernel = made("b", grows=True, peers=2)
    assert not tuned(step(kernel, 0.0, Started()))
    assert kernel.view().awaited == "b (no answer), 1 more that this node does not know yet"
    assert not tuned(step(kernel, 1.0, hello("b", policy="local")))
    assert kernel.view().awaited == "a peer to join"


@pytest.mark.parametrize("paused", [False, True])
def test_the_operator_may_begin_without_them(paused: bool) -> None:
    kernel = made("bc", remote=True)
    step(kernel, 0.0, Started())
    if paused:  # neither a pause nor its end begins a round without peers
        step(kernel, 1.0, Commanded("pause"))
        assert not tuned(step(kernel, 2.0, Commanded("resume")))
        assert kernel.view().life == "waiting"
        step(kernel, 3.0, Commanded("pause"))
    assert tuned(step(kernel, 4.0, Commanded("alone")))
    assert (kernel.view().life, kernel.view().awaited) == ("running", "")


@pytest.mark.parametrize("set_s", [None, 30.0])
def test_no_time_ends_the_wait_for_a_refused_peer_unless_a_setting_asks(
    set_s: float | None,
) -> None:
    kernel = made("bc", timeout_s=set_s)
    step(kernel, 0.0, Started())
    step(kernel, 1.0, hello("b", policy="local"))
    step(kernel, 1.0, hello("c", policy="local", fingerprint="0", facts={**FACTS, "seed": "9"}))
    why = f"c (refused: {kernel.view().peers[1].reason})"
    assert kernel.view().awaited == why
    assert "seed is not set at 'a' and 9 at 'c'" in why
    effects = step(kernel, 120.0, TimerFired(START))
    assert tuned(effects) == bool(set_s)
    if not set_s:
        assert timers(effects)
        assert kernel.view().start_by == math.inf
        assert tuned(step(kernel, 900.0, hello("c", policy="local")))


def test_a_node_that_ran_before_does_not_wait_without_end() -> None:
    frame = replace(context("local", max=5, start=StartSettings()), remote=True)
    state = replace(Local.start(LocalConfig(), frame, PROMPTS).state(), round=2)
    kernel = Kernel(frame, Local.restore(LocalConfig(), frame, state), FACTS, anew=local)
    assert timers(step(kernel, 0.0, Started())) == [SetTimer(START, 120.0)]


def test_a_listed_peer_that_said_goodbye_is_waited_for() -> None:
    kernel = made("bc", remote=True)
    step(kernel, 0.0, Started())
    step(kernel, 1.0, hello("b", policy="local"))
    kernel.step(2.0, replace(hello("c"), message=replace(hello("c").message, phase="bye")))
    assert kernel.view().awaited.startswith("c (")
