"""Records that are kept, and who follows them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from fednode.core.events import Level, Record
from fednode.observe.events import KEPT, MISSED, Events


def told(events: Events, count: int, level: Level = "info", first: int = 0) -> None:
    for number in range(first, first + count):
        events.record(Record("kind", str(number), level, {"round": number}))


async def texts(events: Events, number: int, level: Level) -> list[str]:
    return [one.record.text async for one in events.follow(number, level, live=False)]


def test_a_record_is_one_bounded_line_whatever_it_quotes() -> None:
    events = Events()
    events.record(Record("kind", "\x1b]0;x\x07 a\nb" + "x" * 10_000, "warning"))
    (held,) = events.troubles
    assert held.record.text.isprintable()
    assert len(held.record.text) == 1000


async def test_what_is_kept_comes_first_and_by_level() -> None:
    events = Events()
    told(events, 2)
    told(events, 1, "debug", 2)
    told(events, 1, "error", 3)
    assert await texts(events, 0, "debug") == ["0", "1", "2", "3"]
    assert await texts(events, 0, "info") == ["0", "1", "3"]
    assert await texts(events, 0, "warning") == ["3"]
    assert [one.record.text for one in events.troubles] == ["3"]
    numbers = [one.number async for one in events.follow(0, "debug", live=False)]
    assert numbers == sorted(set(numbers))
    assert await texts(events, numbers[1], "debug") == ["2", "3"]


async def test_details_do_not_push_out_what_matters() -> None:
    events = Events()
    told(events, 3)
    told(events, 2 * KEPT, "debug")
    assert await texts(events, 0, "info") == ["0", "1", "2"]
    assert len(await texts(events, 0, "debug")) == KEPT


async def test_a_follower_gets_each_record_as_it_happens() -> None:
    events, seen = Events(), list[str]()
    began = asyncio.Event()

    async def follow() -> None:
        async with aclosing(events.follow(0, "info")) as following:
            async for one in following:
                seen.append(one.record.text)
                began.set()
                if one.record.text == "4":
                    return

    told(events, 1)
    task = asyncio.create_task(follow())
    await began.wait()
    told(events, 4, first=1)
    async with asyncio.timeout(180):
        await task
    assert seen == ["0", "1", "2", "3", "4"]
    assert not events._waiting, "a follower that went is forgotten"


async def test_a_follower_that_is_too_slow_is_told_so() -> None:
    events = Events()
    told(events, 1)
    following = events.follow(0, "info")
    assert (await anext(following)).record.text == "0"
    told(events, KEPT + 5, first=1)
    missed = await anext(following)
    assert (missed.record.kind, missed.record.level) == (MISSED, "warning")
    assert (await anext(following)).record.text == "6"  # 1 to 5 made room
    await following.aclose()
