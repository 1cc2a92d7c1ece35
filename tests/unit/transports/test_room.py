"""Places for unknown callers: a source that holds many makes room for others, and for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fednode.transports.room import Room, source_of

GUARD_S = 180.0
"""A bound for a test that hangs; none takes nearly as long."""


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::4", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("a-name", "a-name"),
    ],
)
def test_a_source_is_what_one_caller_controls(host: str, source: str) -> None:
    assert source_of(host) == source


class Visits:
    """Tasks that hold a place each until they are told to go, or lose the place."""

    def __init__(self, most: int) -> None:
        self.room, self.most = Room(), most
        self.lost: list[str] = []
        self.inside: list[str] = []
        self.go = asyncio.Event()

    async def come(self, source: str, name: str) -> asyncio.Task[None]:
        """Begin a visit, and return when it holds its place."""
        here = asyncio.Event()

        async def stay() -> None:
            with self.room.place(source, self.most) as lost:
                self.lost += [lost] if lost else []
                self.inside.append(name)
                here.set()
                try:
                    await self.go.wait()
                finally:
                    self.inside.remove(name)

        task = asyncio.create_task(stay())
        await here.wait()
        return task

    async def end(self, *tasks: asyncio.Task[None]) -> list[bool]:
        """End all visits; return which of them lost their place before."""
        self.go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [task.cancelled() for task in tasks]


async def gone(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until visits have lost their places; fail if they have not."""
    async with asyncio.timeout(GUARD_S):
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_source_of_most_places_loses_its_oldest() -> None:
    visits = Visits(3)
    tasks = [await visits.come(*who) for who in (("a", "a1"), ("b", "b1"), ("b", "b2"))]
    tasks.append(await visits.come("c", "c1"))
    await gone(tasks[1:2])
    assert (visits.lost, sorted(visits.inside)) == (["b"], ["a1", "b2", "c1"])
    assert await visits.end(*tasks) == [False, True, False, False]


async def test_a_source_that_wants_many_places_takes_them_from_itself() -> None:
    visits = Visits(3)
    tasks = [await visits.come("a", "a1")]
    tasks += [await visits.come("b", f"b{number}") for number in range(6)]
    await gone(tasks[1:5])
    assert sorted(visits.inside) == ["a1", "b4", "b5"]
    assert visits.lost == ["b"] * 4
    await visits.end(*tasks)


async def test_a_place_that_is_given_back_costs_nobody_a_place() -> None:
    visits = Visits(1)
    assert await visits.end(await visits.come("a", "a1")) == [False]
    visits.go.clear()
    task = await visits.come("b", "b1")
    assert visits.lost == []
    assert await visits.end(task) == [False]
    assert visits.room._held == {}
