"""The service that newcomers call: what an invited one is told, and who hears of a copied link."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from fednode.admission.register import Register
from fednode.admission.service import IntroducerService, Mesh, anyone
from fednode.admission.words import words_of
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.certificate import mint
from fednode.storage import disk
from fednode.wire.gen.introducer_pb2 import Contact, EnrolRequest, JudgeReply
from tests.unit.identity.people import LISTED, MESH, MESH_KEY, NOW, STRANGER, der

ADDRESS = "127.0.0.1:7101"


class Ended(Exception):
    """A call was ended."""


class Context:
    async def abort(self, code: Any, text: str) -> None:
        raise Ended(f"{code.name}: {text}")


def test_any_key_may_ask() -> None:
    assert anyone(der(mint(STRANGER, "n", b"", NOW)), "")[1] == ""
    assert anyone(b"no certificate", "")[1] != ""


async def test_an_invited_newcomer_is_told_of_the_mesh_and_a_copied_link_is_noticed(
    tmp_path: Path,
) -> None:
    book = Register(tmp_path, MESH, lambda one: leases.sign(MESH_KEY, one))
    caller, said, alarms, met = [LISTED["a"]], list[str](), list[str](), list[str]()
    asked_for = list[tuple[str, str]]()
    mesh = Mesh(
        contacts=lambda but: [Contact(name=f"not {but}")],
        revocations=lambda: [b"r"],
        offer=lambda: JudgeReply(members=["z"]),
        met=lambda new: met.append(new.name),
        asks=lambda name, text: asked_for.append((name, text)),
    )
    service = IntroducerService(
        book, lambda _: caller[0], lambda _: "192.0.2.1", said.append, mesh, alarms.append
    )
    token = book.tokens.for_link("a", 7).hex()
    asked = EnrolRequest(mesh=MESH, name="a", address=ADDRESS, token=token)
    judged = await service.Judge(asked, Context())
    assert list(judged.members) == ["z"]
    assert judged.clock == pytest.approx(time.time(), abs=60.0)
    assert (book.enrolled(), met) == ([], [])
    reply = await service.Enrol(asked, Context())
    assert (reply.contacts[0].name, list(reply.revocations)) == ("not a", [b"r"])
    assert met == ["a"]
    caller[0] = LISTED["b"]
    for call in (service.Judge, service.Enrol):
        with pytest.raises(Ended, match="PERMISSION_DENIED: the link for 'a' was used before"):
            await call(asked, Context())
    assert len(alarms) == 1, "one warning a link and minute"
    assert LISTED["b"] in alarms[0]
    assert "192.0.2.1" in alarms[0]
    assert not any(token in line for line in (*said, *alarms))
    alarms.clear()
    token = book.tokens.for_link("c", 7, approve=True).hex()
    asked = EnrolRequest(mesh=MESH, name="c", address=ADDRESS, token=token)
    with pytest.raises(Ended, match="the operator has to approve the key of 'c' first"):
        await service.Enrol(asked, Context())
    words = words_of(keys.read_group(LISTED["b"]))
    ((name, text),) = asked_for
    assert (name, alarms) == ("c", [])
    assert text == (
        f"c at {ADDRESS} asks to join, words of its key: {words}; compare them by phone, then "
        "`fednode requests admit c` or `fednode requests refuse c`"
    )


async def test_whoever_shows_a_link_again_and_again_warns_once_a_minute(tmp_path: Path) -> None:
    book = Register(tmp_path, MESH, lambda one: leases.sign(MESH_KEY, one))
    caller, said, alarms, asked_for = [LISTED["a"]], list[str](), list[str](), list[str]()
    now = [0.0]
    service = IntroducerService(
        *(book, lambda _: caller[0], lambda _: "", said.append),
        Mesh(
            contacts=lambda _: [],
            revocations=list[bytes],
            asks=lambda name, _: asked_for.append(name),
        ),
        *(alarms.append, lambda: now[0]),
    )
    used = [book.tokens.for_link(name, 7).hex() for name in "ab"]
    knocking = [book.tokens.for_link(name, 7, approve=True).hex() for name in "cd"]
    for name, token in zip("ab", used, strict=True):
        caller[0] = LISTED[name]
        asked = EnrolRequest(mesh=MESH, name=name, address=ADDRESS, token=token)
        await service.Enrol(asked, Context())
    for seconds, count in ((0.0, 1), (0.0, 1), (59.0, 1), (60.0, 2), (61.0, 2)):
        now[0] = seconds
        caller[0] = keys.node_id(STRANGER)
        for name, token in zip("abcd", [*used, *knocking], strict=True):
            asked = EnrolRequest(mesh=MESH, name=name, address=ADDRESS, token=token)
            with pytest.raises(Ended):
                await service.Enrol(asked, Context())
        assert (len(alarms), sorted(asked_for)) == (2 * count, sorted("cd" * count))
    assert sum("refused a copy of a link" in line for line in said) == 10


async def test_a_lock_that_another_process_holds_does_not_stop_the_node(
    tmp_path: Path,
) -> None:
    book = Register(tmp_path, MESH, lambda one: leases.sign(MESH_KEY, one))
    token = book.tokens.for_link("a", 7).hex()
    service = IntroducerService(book, lambda _: LISTED["a"])
    asked = EnrolRequest(mesh=MESH, name="a", address=ADDRESS, token=token)
    with disk.alone(tmp_path / "book.lock"):  # by another descriptor, as another process
        calls = [asyncio.create_task(service.Enrol(asked, Context())) for _ in range(9)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
    assert all([(await call).lease for call in calls])
