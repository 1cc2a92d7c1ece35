"""The sockets between TLS and gRPC: made at the first use, made anew when a cleaner took them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fednode.errors import AddressError
from fednode.transports import sockets
from fednode.transports import tls as module
from fednode.transports.lines import Lines
from tests.unit.identity.people import LISTED, A, B, Person, person
from tests.unit.transports.relays import Node, raised
from tests.unit.transports.test_tls import GUARD_S, who


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a short folder that alone holds temporary files."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def made(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


def replace(folder: Path) -> None:
    """Do what another user may do in /tmp once a folder is gone."""
    names = [file.name for file in folder.iterdir()]
    folder.rename(folder.with_name("taken"))
    folder.mkdir()
    for name in names:
        (folder / name).touch()


def empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


@pytest.mark.parametrize(
    "clean",
    [
        shutil.rmtree,
        empty,
        replace,
        lambda folder: (folder / "inside").unlink(),
        lambda folder: (folder / "out-1").unlink(),
    ],
)
async def test_a_node_whose_sockets_a_cleaner_took_is_reached_and_reaches_others(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, clean: Callable[[Path], None]
) -> None:
    a, b = person(A, "a"), person(B, "b")
    node, other = a.transport(), b.transport()
    here = await node.listen("127.0.0.1:0", who)
    (folder,) = made(temporary)
    there = await other.listen("127.0.0.1:0", who)
    assert await node.send(there, b"x", GUARD_S, "b") == LISTED["a"].encode()
    assert await other.send(here, b"x", GUARD_S, "a") == LISTED["b"].encode()
    clean(folder)
    assert node._tls is not None
    await node._tls.mend()  # what a node does every SWEEP_S
    assert await node.send(there, b"x", GUARD_S, "b") == LISTED["a"].encode()
    assert await newcomer(b, here) == LISTED["b"].encode()
    assert await other.send(here, b"x", GUARD_S, "a") == LISTED["b"].encode()
    ((kind, text, bad),) = a.said
    assert (kind, bad) == ("sockets.lost", True)
    assert "another program removed sockets of this node" in text
    for one in (node, other):
        await one.close()


async def newcomer(one: Person, to: str) -> bytes:
    """Return the answer to a call over a connection of its own."""
    transport = one.transport()
    try:
        return await transport.send(to, b"x", GUARD_S, "a")
    finally:
        await transport.close()


async def test_the_first_caller_after_the_cleaner_is_served(temporary: Path) -> None:
    a = person(A, "a")
    node = a.transport()
    here = await node.listen("127.0.0.1:0", who)
    shutil.rmtree(made(temporary)[0])
    assert await newcomer(person(B, "b"), here) == LISTED["b"].encode()
    assert [kind for kind, *_ in a.said] == ["sockets.lost"]
    await node.close()
    assert made(temporary) == []


async def test_a_long_folder_for_temporary_files_is_not_used(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setattr(sockets, "PLAIN", str(temporary))
    node = person(A, "a").transport()
    here = await node.listen("127.0.0.1:0", who)
    assert await newcomer(person(B, "b"), here) == LISTED["b"].encode()
    await node.close()
    assert made(temporary) == [long]
    for nowhere in (str(long), str(temporary / "absent")):
        monkeypatch.setattr(sockets, "PLAIN", nowhere)
        with pytest.raises(AddressError, match=r"no place for this node's sockets.*set TMPDIR"):
            await person(A, "a").transport().listen("127.0.0.1:0", who)


async def test_what_is_never_used_leaves_nothing(temporary: Path) -> None:
    person(A, "a").transport()
    assert made(temporary) == []
    used = person(A, "a").transport()
    await used.listen("127.0.0.1:0", who)
    await used.close()
    assert made(temporary) == []


@pytest.mark.parametrize("address", ["relay", "127.0.0.1:0"])
async def test_a_node_looks_for_unfinished_calls_once_however_it_listens(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(module, "SWEEP_S", 0.01)
    looked = asyncio.Queue[Lines]()
    monkeypatch.setattr(Lines, "sweep", lambda lines: looked.put_nowait(lines))
    async with raised(watch=False) as relay, asyncio.timeout(GUARD_S):
        node = Node("n1", relay.at)
        await node.listen(address, who)
        while await looked.get() is not node.tls._lines:
            pass
        sweeping = [task for task in asyncio.all_tasks() if "Tls._sweep" in repr(task)]
        assert len(sweeping) == 2  # the node's, and the relay's
        await node.close()
