"""The service that newcomers call: they ask for a lease, or whether they would get one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import grpc

from fednode.admission.calls import CallLog
from fednode.admission.register import Register
from fednode.admission.tokens import Knocked, StolenLink
from fednode.admission.words import words_of
from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity.certificate import judged
from fednode.identity.lease import disarm
from fednode.wire.gen import introducer_pb2, introducer_pb2_grpc

VISIT_S: Final = 15.0
"""Longest duration of a newcomer's connection; an enrolment is one call."""
VISIT_STREAMS: Final = 2
AGAIN_S: Final = 60.0
"""The operator is warned of a link once in this time, however often it is shown."""
BROKEN: Final = "the register of this node cannot be used now; its log says why"
VISIT_MESSAGE_BYTES: Final = 4 << 10
"""Bytes of a message of a newcomer; a call to enrol needs half of them at most."""
Say = Callable[[str], None]


def anyone(certificate: bytes, who: str) -> tuple[str, str]:
    """Return the id of a certificate, and "" if it can be read: the token decides, not the key."""
    return judged(certificate, lambda _: "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """What the service knows of the mesh around the one who admits.

    contacts: returns members to greet first, but not the one of a name. revocations: returns
    proofs. offer: returns what an invited newcomer is told before it decides. met: takes a node
    that was enrolled. asks: tells the operator of a site that waits, by its name and a sentence.
    """

    contacts: Callable[[str], Iterable[introducer_pb2.Contact]]
    revocations: Callable[[], Iterable[bytes]]
    offer: Callable[[], introducer_pb2.JudgeReply] = introducer_pb2.JudgeReply
    met: Callable[[introducer_pb2.Contact], None] = lambda _: None
    asks: Callable[[str, str], None] = lambda *_: None

    @classmethod
    def of(cls, book: Register) -> Mesh:
        """Return the mesh as an introducer's register knows it."""
        return cls(contacts=lambda but: enrolled(book, but), revocations=book.revocations)


def enrolled(book: Register, but: str) -> list[introducer_pb2.Contact]:
    """Return some nodes of a register, drawn at random, without the node called `but`."""
    return [
        introducer_pb2.Contact(
            name=node.name, address=node.address, id=node.id, lease=disarm(node.lease)
        )
        for node in book.sample(but)
    ]


class IntroducerService(introducer_pb2_grpc.IntroducerServicer):
    """Answer newcomers from the register, one at a time, because each answer may write."""

    def __init__(
        self,
        book: Register,
        caller: Callable[[Any], str | None],
        source: Callable[[Any], str] = lambda _: "",
        say: Say = lambda _: None,
        mesh: Mesh | None = None,
        alarm: Say = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up. say: shows a line of the log, with the counts of all calls so far.

        alarm: tells the operator of a link that was copied.
        """
        self._book, self._log, self._alarm = book, CallLog(say), alarm
        self._mesh = mesh or Mesh.of(book)
        self._caller, self._source = caller, source
        self._clock, self._said = clock, dict[tuple[str, str], float]()
        self.called = asyncio.Event()

    def register(self, server: Any) -> None:
        """Add the service to a grpc.aio server."""
        introducer_pb2_grpc.add_IntroducerServicer_to_server(self, server)

    async def Enrol(
        self, request: introducer_pb2.EnrolRequest, context: Any
    ) -> introducer_pb2.EnrolReply:
        """Give the caller's key a lease on a name."""
        self.called.set()
        lease = await self._given(request, context, dry=False)
        id = self._caller(context) or ""
        self._mesh.met(
            introducer_pb2.Contact(name=request.name, address=request.address, id=id, lease=lease)
        )
        return introducer_pb2.EnrolReply(
            lease=lease,
            contacts=list(self._mesh.contacts(request.name)),
            revocations=list(self._mesh.revocations()),
        )

    async def Judge(
        self, request: introducer_pb2.EnrolRequest, context: Any
    ) -> introducer_pb2.JudgeReply:
        """Say whether the caller's key would get a lease on a name, and what the mesh is."""
        await self._given(request, context, dry=True)
        reply = self._mesh.offer()
        reply.clock = time.time()
        return reply

    def _is_new(self, what: str, token: str) -> bool:
        """Tell whether the operator heard nothing of this kind of a link in the last minute."""
        now = self._clock()
        self._said = {key: at for key, at in self._said.items() if now - at < AGAIN_S}
        is_new = (what, token) not in self._said
        self._said.setdefault((what, token), now)
        return is_new

    async def _given(self, request: introducer_pb2.EnrolRequest, context: Any, dry: bool) -> bytes:
        """Return the book's answer to a call, and log it; end the call if the book refuses it."""
        id, source, book = self._caller(context) or "", self._source(context), self._book
        asked = request.mesh, request.name, request.address, request.token
        try:
            known = any(node.id == id for node in await book.apart(book.enrolled))
            lease = await book.admit(id, *asked, source, dry)
        except StolenLink as fault:
            if self._is_new("copied", request.token):
                self._alarm(f"a copied link: {fault} (from {source}, key {id})")
            self._log.add("refused", f"refused a copy of a link ({source}): {fault}")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(fault))
        except Knocked as fault:
            if self._is_new("knocked", request.token):
                words = await asyncio.to_thread(words_of, keys.read_group(id))
                self._mesh.asks(
                    request.name,
                    f"{request.name} at {request.address} asks to join, words of its key: {words}; "
                    f"compare them by phone, then `fednode requests admit {request.name}` or "
                    f"`fednode requests refuse {request.name}`",
                )
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(fault))
        except IdentityError as fault:
            self._log.add("refused", f"refused {request.name[:64]!r} ({source}): {fault}")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(fault))
        except StateError as fault:
            self._log.add("failed", f"failed at {request.name[:64]!r}: {fault}")
            await context.abort(grpc.StatusCode.INTERNAL, BROKEN)
        what = "checked" if dry else "renewed" if known else "enrolled"
        self._log.add(
            what, f"{what} {request.name!r} at {request.address} ({source}), key {id[:12]}"
        )
        return lease
