"""What a key may say: bursts pass, the rates hold, and a key that stays over them floods."""

from __future__ import annotations

import math

import pytest

from fednode.transports import meter as module
from fednode.transports.meter import (
    BURST_S,
    CALLS_BURST_S,
    OVER_S,
    REST_S,
    UNFINISHED_BYTES_MAX,
    UNFINISHED_CALLS_MAX,
    USUAL,
    Account,
    Meter,
    Rates,
)

STEPS_MAX = 100_000


def taken(what: str, amount: float, seconds: float) -> tuple[float, bool]:
    """Say `amount` of something whenever it is read; return how much came in, and if it floods."""
    account, now, total = Account(), 0.0, 0.0
    for _ in range(STEPS_MAX):
        if now >= seconds or account.floods(now):
            return total, account.floods(now)
        pause = account.pause(now)
        if pause:
            now += pause
            continue
        setattr(account, what, getattr(account, what) + amount)
        total += amount
    pytest.fail(f"{what}: nothing is bounded, it reads on for ever")


@pytest.mark.parametrize("what", ["calls", "frames", "records", "size"])
def test_a_burst_passes_and_then_the_rate_holds(what: str) -> None:
    rate = getattr(USUAL, what)
    once = rate * (CALLS_BURST_S if what == "calls" else BURST_S)
    for seconds in (2.0, 8.0):
        total, _ = taken(what, rate / 10, seconds)
        assert once <= total <= once + rate * (seconds + 1.2)


@pytest.mark.parametrize("what", ["calls", "frames", "records"])
def test_who_stays_over_a_rate_floods(what: str) -> None:
    assert taken(what, getattr(USUAL, what) / 10, 2 * OVER_S)[1]


def test_large_prompts_are_slowed_and_are_no_flood() -> None:
    total, floods = taken("size", 1 << 20, 10 * OVER_S)
    assert not floods
    assert total <= USUAL.size * (10 * OVER_S + BURST_S + 1)


def test_a_burst_that_ends_is_forgotten() -> None:
    account = Account()
    account.calls += int(USUAL.calls * (CALLS_BURST_S + 1))
    assert account.pause(0.0) > 0
    assert account.pause(CALLS_BURST_S / 2 + 1.5) == 0
    account.calls += int(USUAL.calls * (BURST_S + 2))
    assert account.pause(OVER_S + 1.0)
    assert not account.floods(OVER_S + 2.0)


@pytest.mark.parametrize(
    ("what", "most"),
    [("unfinished_bytes", UNFINISHED_BYTES_MAX), ("unfinished_calls", UNFINISHED_CALLS_MAX)],
)
def test_unfinished_calls_hold_a_key_up_until_it_floods(what: str, most: int) -> None:
    account = Account()
    setattr(account, what, most + 1)
    assert account.pause(0.0) > 0
    setattr(account, what, 0)
    assert account.pause(1.0) == 0
    setattr(account, what, most + 1)
    assert account.pause(2.0) > 0
    assert account.floods(3.0 + OVER_S)


def test_new_connections_come_at_a_pace() -> None:
    account = Account()
    at_once = sum(not account.enter(0.0) for _ in range(200))
    assert at_once == USUAL.doors_at_once
    assert "connections a second" in account.enter(0.2)
    assert account.enter(1.0) == ""


def test_who_rests_gets_no_connection_and_then_does() -> None:
    account = Account()
    account.rest(0.0, REST_S)
    account.rest(0.0, 1.0)
    assert "for 59 s" in account.enter(1.0)
    assert account.enter(REST_S) == ""
    account.rest(REST_S, math.inf)
    assert account.enter(1e9) == "connections with it are refused"


def test_the_rates_stand_above_the_quota_of_messages() -> None:
    assert Rates.around(1.0, 1.0) == USUAL
    more = Rates.around(1000.0, 1000.0)
    assert more.calls >= 1000
    assert more.size >= 1000e6
    assert more.frames >= 8 * more.calls


def test_accounts_of_keys_that_left_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACCOUNTS_MAX", 3)
    meter = Meter()
    meter.account("resting", 0.0).rest(0.0, math.inf)
    meter.account("here", 0.0).lines = 1
    for number in range(50):
        meter.account(f"gone-{number}", float(number))
    assert len(meter._accounts) <= 3 + 8
    assert meter.account("resting", 99.0).resting(99.0)
    assert meter.account("here", 99.0).lines == 1
