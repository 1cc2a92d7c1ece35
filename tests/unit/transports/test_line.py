"""One connection at the meter: calls in progress, header blocks, visitors."""

from __future__ import annotations

import pytest

from fednode.transports.line import (
    CALL_S,
    HEADER_BYTES_MAX,
    PIECES_S,
    VISIT_BYTES_MAX,
    VISIT_FRAMES_MAX,
    Crumbled,
    Flood,
    Line,
)
from fednode.transports.lines import Lines
from fednode.transports.meter import (
    CALL_BYTES,
    CARRYING,
    OVER_S,
    UNFINISHED_BYTES_MAX,
    Account,
    Rates,
)
from fednode.transports.session import PeerRejected
from tests.e2e.attacks.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    RST,
    frame,
)

BEGIN = PREFACE + frame(4)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lined(serving: bool = True, visit: bool = False) -> tuple[Line, Account, Clock]:
    clock, account = Clock(), Account()
    line = Line(account, clock, serving, visit)
    if serving:
        line.came(BEGIN)
    return line, account, clock


def test_a_call_counts_until_it_is_answered() -> None:
    line, account, _ = lined()
    line.came(frame(HEADERS, END_HEADERS, 1, bytes(50)) + frame(DATA, END_STREAM, 1, bytes(900)))
    assert (account.unfinished_calls, account.unfinished_bytes, account.calls) == (1, 900, 1)
    line.went(frame(HEADERS, END_HEADERS, 1, bytes(9)) + frame(DATA, 0, 1, bytes(5)))
    assert account.unfinished_calls == 1
    line.went(frame(HEADERS, END_HEADERS | END_STREAM, 1, bytes(9)))
    assert (account.unfinished_calls, account.unfinished_bytes) == (0, 0)


@pytest.mark.parametrize("way", ["came", "went"])
def test_a_reset_ends_a_call_and_it_stays_counted_as_begun(way: str) -> None:
    line, account, _ = lined()
    line.came(frame(HEADERS, END_HEADERS, 1) + frame(DATA, 0, 1, bytes(77)))
    getattr(line, way)(frame(RST, 0, 1, bytes(4)))
    assert (account.unfinished_calls, account.unfinished_bytes, account.calls) == (0, 0, 1)
    line.came(frame(DATA, 0, 1, bytes(77)))  # after its end it is nobody's
    assert account.unfinished_bytes == 0


def test_trailers_begin_no_call() -> None:
    line, account, _ = lined()
    line.came(frame(HEADERS, END_HEADERS, 1) + frame(HEADERS, END_HEADERS | END_STREAM, 1))
    assert account.calls == 1


def test_a_frame_in_pieces_counts_as_one_piece() -> None:
    line, account, _ = lined()
    line.came(frame(HEADERS, END_HEADERS, 1))
    for _ in range(64):
        line.came(frame(DATA, 0, 1, bytes(1 << 20)))
    assert account.unfinished_bytes == CALL_BYTES


def test_the_end_of_a_connection_ends_its_calls() -> None:
    line, account, _ = lined()
    line.came(frame(HEADERS, END_HEADERS, 1) + frame(DATA, 0, 1, bytes(500)))
    line.close()
    assert (account.unfinished_calls, account.unfinished_bytes, account.lines) == (0, 0, 0)


@pytest.mark.parametrize(("size", "limit"), [(500, CALL_S), (2 << 20, PIECES_S)])
def test_a_call_that_stays_unfinished_is_overdue(size: int, limit: float) -> None:
    line, _, clock = lined()
    line.came(frame(HEADERS, END_HEADERS, 1) + frame(DATA, 0, 1, bytes(size)))
    clock.now = limit
    assert not line.overdue()
    clock.now = limit + 1
    assert line.overdue()
    line.came(frame(DATA, END_STREAM, 1))  # now it waits for this node's answer
    assert not line.overdue()


def test_a_header_block_has_a_bound_however_it_is_cut() -> None:
    line, _, _ = lined()
    line.came(frame(HEADERS, 0, 1, bytes(16_000)))
    line.came(frame(CONTINUATION, 0, 1, bytes(16_000)))
    with pytest.raises(Flood, match="header block"):
        line.came(frame(CONTINUATION, 0, 1, bytes(HEADER_BYTES_MAX - 31_999)))


def test_header_bytes_and_small_frames_cost_more_than_large_ones() -> None:
    line, account, _ = lined()
    before = account.frames
    line.came(frame(DATA, 0, 1, bytes(1 << 20)))
    assert account.frames == before
    line.came(frame(PING, 0, 0, bytes(8)) * 5)
    assert account.frames == before + 5
    line.came(frame(HEADERS, END_HEADERS, 1, bytes(6400)))
    assert account.frames == before + 105


def test_small_records_and_short_reads_are_counted() -> None:
    line, account, _ = lined()
    line.sealed(22 + 1000)
    line.came(frame(DATA, 0, 1, bytes(991)))
    assert round(account.records) == 2  # a record, and a short read
    line.sealed(4 * (22 + 16_384))
    line.came(frame(DATA, 0, 1, bytes(65_527)))
    assert round(account.records) == 6
    line.sealed(400 * 27)  # key updates: nothing comes of them
    assert account.records > 406


def test_what_answers_is_metered_too() -> None:
    line, account, _ = lined(serving=False)
    line.came(frame(PING, 0, 0, bytes(8)) * 1000)
    line.came(frame(HEADERS, END_HEADERS, 1) + frame(DATA, 0, 1, bytes(1 << 20)))
    assert account.frames > 1000
    assert (account.calls, account.unfinished_calls) == (0, 0)


async def test_who_holds_too_many_bytes_in_unfinished_calls_floods() -> None:
    line, account, clock = lined()
    for stream in range(1, 2 * (UNFINISHED_BYTES_MAX // CALL_BYTES), 2):
        line.came(frame(HEADERS, END_HEADERS, stream) + frame(DATA, 0, stream, bytes(1 << 20)))
    assert account.unfinished_bytes <= UNFINISHED_BYTES_MAX
    for stream in (1001, 1003):
        line.came(frame(HEADERS, END_HEADERS, stream) + frame(DATA, 0, stream, bytes(1 << 20)))
    assert account.pause(clock.now)
    clock.now += OVER_S + 1
    with pytest.raises(Flood):
        await line.permit()


def test_a_visitor_says_little() -> None:
    line, _, _ = lined(visit=True)
    line.came(frame(DATA, 0, 1, bytes(VISIT_BYTES_MAX - len(BEGIN) - 9)))
    with pytest.raises(Flood, match="bytes"):
        line.came(b"x")
    line, _, _ = lined(visit=True)
    with pytest.raises(Flood, match="frames"):
        line.came(frame(PING, 0, 0, bytes(8)) * VISIT_FRAMES_MAX)


async def test_crumbs_of_a_relay_are_its_own_doing_and_cost_the_other_end_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, account, carrier = Clock(), Account(), Account(CARRYING)
    line = Line(account, clock, serving=True, carrier=carrier)
    line.came(BEGIN)
    before = account.records

    async def rest(seconds: float) -> None:
        clock.now += seconds
        for _ in range(10_000):
            line.sealed(1)

    monkeypatch.setattr("fednode.transports.line.asyncio.sleep", rest)
    for _ in range(100_000):
        line.sealed(1)
    assert account.records - before < 100_000 / 20
    account.records = 0.0  # what the records themselves hold has come out as plain bytes
    assert not line.free()
    with pytest.raises(Crumbled, match="too many small pieces"):
        await line.permit()
    assert account.over_since is None


async def test_a_stream_that_a_relay_crumbles_ends_and_its_key_may_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = Lines(Rates(), visits=False)
    with (
        pytest.raises(PeerRejected, match="the relay passes streams on") as told,
        lines.serve("id", "relay r:1 id", "r:1"),
    ):
        raise Crumbled("the relay passes streams on in too many small pieces")
    assert (told.value.kind, told.value.id) == ("relay", "")
    lines.enter("id")
    with pytest.raises(PeerRejected) as flood, lines.serve("id", "relay r:1 id", "r:1"):
        raise Flood("too much")
    assert (flood.value.kind, flood.value.id) == ("flood", "id")
    with pytest.raises(PeerRejected, match="connections with it are refused"):
        lines.enter("id")
