"""Places of newcomers: a source that wants many takes them from itself."""

from __future__ import annotations

import asyncio

import pytest

from fednode.transports.room import Room, source_of


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_a_source_is_what_one_caller_controls(host: str, source: str) -> None:
    assert source_of(host) == source


class Visits:
    """Tasks that hold a place until they are told to go."""

    def __init__(self, most: int) -> None:
        self.room, self.most = Room(), most
        self.lost: list[str] = []

    async def come(self, source: str) -> asyncio.Task[None]:
        entered = asyncio.Event()

        async def stay() -> None:
            with self.room.place(source, self.most) as lost:
                self.lost.append(lost)
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(stay())
        async with asyncio.timeout(20):
            await entered.wait()
        return task


async def ended(task: asyncio.Task[None]) -> bool:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task.done()


async def test_the_source_of_most_loses_its_oldest() -> None:
    visits = Visits(3)
    first, second = await visits.come("greedy"), await visits.come("greedy")
    honest = await visits.come("honest")
    newcomer = await visits.come("new")
    assert visits.lost == ["", "", "", "greedy"]
    assert await ended(first)
    assert not any(task.done() for task in (second, honest, newcomer))
    for task in (second, honest, newcomer):
        task.cancel()


async def test_a_place_that_is_left_is_free_again() -> None:
    visits = Visits(1)
    first = await visits.come("a")
    first.cancel()
    assert await ended(first)
    second = await visits.come("b")
    assert visits.lost == ["", ""]
    second.cancel()
