"""The wait before the first round: for whom, how long, and what people are told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.events import Effect, Event, Record, SetTimer, Started, TimerFired, Tune
from fednode.core.kernel import START, Kernel
from fednode.core.settings import StartSettings
from fednode.core.waiting import PEERS_MAX
from fednode.policies.local.exchange import Local, LocalConfig
from tests.unit.core.scenes import FACTS, PROMPTS, context
from tests.unit.core.test_kernel import hello


def made(names: str, **start: float | None) -> Kernel:
    settings = StartSettings(**start)  # type: ignore[arg-type]
    frame = replace(context("local", start=settings), peers=tuple(names))
    return Kernel(frame, Local.start(LocalConfig(), frame, PROMPTS), FACTS)


def texts(effects: list[Effect]) -> list[str]:
    return [one.text for one in effects if isinstance(one, Record) and "start." in one.kind]


def step(kernel: Kernel, now: float, event: Event) -> list[Effect]:
    return list(kernel.step(now, event))


def test_by_default_all_known_peers_are_waited_for() -> None:
    kernel = made("bcd")
    effects = step(kernel, 5.0, Started())
    assert SetTimer(START, 120.0) in effects
    assert texts(effects) == ["round 1 waits for b, c, d, at most 120 s (rounds.start)"]
    assert (kernel.view().awaited, kernel.view().start_by) == ("b, c, d", 125.0)
    for peer, left in (("b", "c, d"), ("d", "c")):
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
    assert texts(effects) == ["round 1 begins without c: no answer within 40 s"]
    assert any(isinstance(one, Tune) for one in effects)


@pytest.mark.parametrize("adopted", [4, 5])
def test_a_node_that_starts_again_after_its_last_round_waits_for_nobody(adopted: int) -> None:
    frame = context("local", max=5, start=StartSettings())
    state = replace(Local.start(LocalConfig(), frame, PROMPTS).state(), round=adopted)
    kernel = Kernel(frame, Local.restore(LocalConfig(), frame, state), FACTS)
    effects = step(kernel, 0.0, Started())
    waits = ["round 5 waits for b, c, at most 120 s (rounds.start)"] if adopted == 4 else []
    assert texts(effects) == waits
    assert (kernel.view().life, kernel.view().awaited) == (
        ("waiting", "b, c") if waits else ("finished", "")
    )


def test_of_many_peers_eight_are_enough() -> None:
    kernel = made("bcdefghijkl")
    effects = step(kernel, 0.0, Started())
    assert texts(effects)[0].startswith(f"round 1 waits for {PEERS_MAX} of b, c, d, ")
    for peer in "bcdefgh":
        step(kernel, 1.0, hello(peer, policy="local"))
    assert kernel.view().awaited == "1 of i, j, k, l"
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
