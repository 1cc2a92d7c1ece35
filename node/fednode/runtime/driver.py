"""The daemon's host: performs the kernel's effects on asyncio, transport, store and learner.

One task takes events from one queue and steps the kernel, so steps never overlap. Effects are
performed in order; only Adopt is waited for. Tuning runs on one worker thread, commits on another;
node/fednode/runtime/sender.py sends. So only a commit delays the next events.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from fednode.core import events as ev
from fednode.core.kernel import Kernel
from fednode.core.rate_limit import Quota
from fednode.core.settings import LimitSettings
from fednode.core.types import Job, MemberUpdate, Message, Progress
from fednode.core.view import KernelView
from fednode.defects import reported
from fednode.errors import FednodeError, FrameError, VersionError
from fednode.observe.telemetry import Refusals, Telemetry
from fednode.runtime.members import Listed, MemberDirectory
from fednode.runtime.sender import SEND_TIMEOUT_S, Sender
from fednode.runtime.worker import Learning, Worker
from fednode.storage.store import Store
from fednode.transports.base import Address, OnFrame, Transport
from fednode.wire import codec
from fednode.wire.codec import Ack
from fednode.wire.tensors import payload_bytes

EVENTS_MAX: Final = 2048
"""While more events than these wait for their steps, a node takes no message."""
FLOOD: Final = 100
"""Number of messages over the quota that are one fault of their sender."""
FLOODED: Final = "flood"
"""The kind of refusal of such messages."""
VERSION: Final = "version"
"""The kind of refusal of frames of another version; in an upgrade node by node they are normal."""


class FrameRefused(Exception):
    """A frame is refused. code: of the answer; kind: to count it under, "" to count nothing."""

    def __init__(self, code: ev.AckCode, kind: str, text: str) -> None:
        super().__init__(text)
        self.code: ev.AckCode = code
        self.kind = kind


class Door:
    """The place where frames arrive. While a node loads, it is closed and answers "busy"."""

    def __init__(self) -> None:
        self._inside: OnFrame | None = None

    def open(self, on_frame: OnFrame) -> None:
        self._inside = on_frame

    async def on_frame(self, frame: bytes, caller: str) -> bytes:
        if self._inside is None:
            return codec.encode_ack("busy", "this node is loading its model and images")
        return await self._inside(frame, caller)


class _Stopped(Exception):
    """The driver was told to stop."""


class Driver:
    """Run one kernel until it is told to stop."""

    def __init__(
        self,
        *,
        kernel: Kernel,
        transport: Transport,
        store: Store,
        learning: Learning,
        addresses: Mapping[str, Address],
        members: MemberDirectory | None = None,
        refusals: Refusals | None = None,
        limits: LimitSettings | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.kernel = kernel
        self.telemetry = telemetry or Telemetry()
        self.transport = transport
        self._expect()
        self._store = store
        self._worker = Worker(learning, self.telemetry)
        self.addresses = dict(addresses)
        self.members = members or Listed(frozenset({*kernel.context.peers, kernel.context.name}))
        self._quota = Quota(limits or LimitSettings())
        self._over: Counter[str] = Counter()
        self.refusals = refusals or Refusals()
        self.refusals.show = self.telemetry.record
        self._events: asyncio.Queue[ev.Event] = asyncio.Queue()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._answers: dict[int, asyncio.Future[Ack]] = {}
        self._tasks = asyncio.TaskGroup()
        self._writer = ThreadPoolExecutor(1, "store")
        self._stop = asyncio.Event()
        self.left = False
        self._token = 0
        self._sender = Sender(
            transport,
            self.addresses,
            self.telemetry,
            dtype=learning.dtype,
            post=self._post,
            spawn=self._tasks.create_task,
        )

    async def run(self) -> None:
        """Step until stop() is called, then wait for one step of tuning and one commit at most.

        The caller makes the transport listen, with on_frame or with a Door that leads to it. A task
        that fails has met a defect of this program: the node ends with it.
        """
        try:
            async with self._tasks:
                for peer in sorted(self.addresses):
                    self._sender.open(peer)
                for warning in self._store.warnings:
                    self.telemetry.record(ev.Record("state.damaged", warning, "warning"))
                self._worker.look()
                self._post(ev.Started())
                self._tasks.create_task(self._step_all())
                await self._stop.wait()
                raise _Stopped
        except BaseExceptionGroup as ends:
            for fault in ends.exceptions:
                if not isinstance(fault, _Stopped):
                    raise fault from None
        finally:
            await self._drain()

    def stop(self) -> None:
        """Ask run() to end; it may be called more than once."""
        if not self._stop.is_set():
            self._post(ev.Stopping())  # before the end of the tuning that is cancelled now
        self._worker.cancel()
        self._stop.set()

    # What status reads and asks for (fednode.observe.reply.NodeView) ------------------------------

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the settings that all peers must agree on."""
        return self.kernel.context.fingerprint

    @property
    def progress(self) -> Progress | None:
        return self._worker.progress

    def view(self) -> KernelView:
        return self.kernel.view()

    def refused(self) -> dict[str, int]:
        """Return the number of messages that were not taken, by reason."""
        return {**self.kernel.view().refused, **self.refusals.counts}

    def command(self, command: ev.Command) -> None:
        self._post(ev.Commanded(command))

    def revoke(self, proof: bytes) -> str:
        """Store a revocation, tell it to the mesh, and return the id of the revoked key.

        Raise IdentityError if the proof is invalid.
        """
        news = self.members.take_revocation(proof)
        self.tell((news,))
        return news.id

    def tell(self, news: Sequence[MemberUpdate]) -> None:
        """Take news of members that the host knows."""
        self._shut_out(news)
        self._post(ev.MemberNews(tuple(news)))

    # Events ---------------------------------------------------------------------------------------

    async def _step_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            event = await self._events.get()
            for effect in self.kernel.step(loop.time(), event):
                if not (self.left and isinstance(effect, ev.Send)):  # a Send takes a goodbye back
                    await self._perform(effect)
            if event == ev.Commanded("leave"):
                self.left = True
                self._tasks.create_task(self._leave())
            elif isinstance(event, ev.Adopted):
                self._expect()

    async def _perform(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Send():
                self._sender.send(effect)
            case ev.Introduce(peer=peer, address=address):
                self.addresses[peer] = address
                self._sender.open(peer)
            case ev.TurnAway(peer=peer, seconds=seconds):
                if id := self.members.id_of(peer):
                    self.transport.disconnect(id, seconds)
            case ev.Answer(token=token, code=code, detail=detail, later=later):
                waiting = self._answers.pop(token, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(Ack(code, detail, later))
            case ev.SetTimer(name=name, delay_s=delay):
                self._cancel_timer(name)
                loop = asyncio.get_running_loop()
                self._timers[name] = loop.call_later(delay, self._fire, name)
            case ev.CancelTimer(name=name):
                self._cancel_timer(name)
            case ev.Tune(job=job):
                self._tasks.create_task(self._tune(job))
            case ev.Adopt():
                await self._adopt(effect)
            case ev.Spend(releases=releases, undecided=undecided):
                await self._spent(releases, undecided)
            case ev.Record(cause=cause):
                self.telemetry.record(replace(effect, cause=None))
                if cause is not None:  # its text is for the operator alone (observe/audience.py)
                    self.telemetry.record(ev.Record("defect", reported(cause), "error"))

    def _post(self, event: ev.Event) -> None:
        """Let an event wait for its step; on_frame bounds how many messages do."""
        self._events.put_nowait(event)

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        self._post(ev.TimerFired(name))

    def _cancel_timer(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    # Learner and store ----------------------------------------------------------------------------

    async def _tune(self, job: Job) -> None:
        self._post(await self._worker.tune(job))

    async def _adopt(self, adopt: ev.Adopt) -> None:
        loop, snapshot = asyncio.get_running_loop(), adopt.snapshot
        traffic, began = self.telemetry.total.as_dict(), time.perf_counter()
        try:
            await loop.run_in_executor(self._writer, self._store.commit, snapshot, traffic)
        except FednodeError as fault:
            self._post(ev.AdoptFailed(adopt, str(fault)))
        else:
            seconds = time.perf_counter() - began
            self.telemetry.committed(snapshot, adopt.givers, seconds)
            self._post(ev.Adopted(snapshot))

    async def _spent(self, releases: int, undecided: str) -> None:
        loop, spend = asyncio.get_running_loop(), self._worker.learning.spend
        try:
            if spend is not None:
                await loop.run_in_executor(self._writer, spend, releases, undecided)
        except FednodeError as fault:
            self.telemetry.record(ev.Record("privacy.unwritten", str(fault), "error"))

    def _expect(self) -> None:
        """Tell the transport how large the arrays of a message are, or those of another's state."""
        policy = self.kernel.policy
        arrays = policy.state().tensors.nbytes
        self.transport.expect(max(arrays, getattr(policy, "state_bytes", 0)))

    # Messages -------------------------------------------------------------------------------------

    async def on_frame(self, frame: bytes, caller: str) -> bytes:
        """Take a peer's message; return the acknowledgement when the kernel has decided."""
        began = time.perf_counter()
        try:
            message = self._read(frame, caller)
        except FrameRefused as fault:
            self._note_refused(fault, caller)
            return codec.encode_ack(fault.code, str(fault))
        finally:
            now = asyncio.get_running_loop().time()
            self._quota.spend(caller, time.perf_counter() - began, now)
        if message.sender in self.addresses:
            payload = payload_bytes(message.tensors, message.dtype or self._worker.learning.dtype)
            self.telemetry.count(message.sender, "in", payload, len(frame))
        self._token += 1
        answer = self._answers[self._token] = asyncio.get_running_loop().create_future()
        self._post(ev.Received(message, self._token))
        verdict = await answer
        self.telemetry.message("in", message.sender, message, len(frame), verdict.code)
        return codec.encode_ack(*verdict)

    def _read(self, frame: bytes, caller: str) -> Message:
        """Return the message in a frame; raise FrameRefused if it is refused.

        Cheap checks come first. Without keys callers cannot be told apart, so no quota applies.
        """
        if self._stop.is_set() or self._events.qsize() > EVENTS_MAX:
            raise FrameRefused("busy", "", "this node is stopping or has too much to do")
        if caller:
            over = self._quota.refuse(caller, len(frame), asyncio.get_running_loop().time())
            if over:
                raise FrameRefused("busy", FLOODED, over)
        try:
            message = codec.decode(frame)
        except VersionError as fault:
            raise FrameRefused("refused", VERSION, str(fault)) from fault
        except FrameError as fault:
            raise FrameRefused("invalid", "frame", str(fault)) from fault
        reason = self.members.check_sender(caller, message.sender)
        if reason:
            raise FrameRefused("refused", "identity", reason)
        if not message.members:
            return message
        news = self.members.filter_gossip(message.sender, message.members)
        self._shut_out(news)
        return replace(message, members=news)

    def _shut_out(self, news: Sequence[MemberUpdate]) -> None:
        """Close the connections of revoked keys for good."""
        for update in news:
            if update.state == "revoked":
                self.transport.disconnect(update.id, math.inf)

    def _note_refused(self, fault: FrameRefused, caller: str) -> None:
        """Count a refused frame; if a member sent it, tell the kernel.

        Of the frames over a caller's quota, only each FLOOD-th counts.
        """
        known = self.members.name_of(caller) if caller else ""
        if fault.kind == FLOODED:
            self._over[known] += 1
        if not fault.kind or (fault.kind == FLOODED and self._over[known] % FLOOD):
            return
        self.refusals.note(fault.kind, known, f"from {known or caller or 'a peer'}: {fault}")
        if known and fault.kind != VERSION:
            self._post(ev.Misbehaved(known, str(fault)))

    # Ending ---------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        """Stop when the goodbyes are sent, or after the time limit of a send."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._sender.emptied()
        self.stop()

    async def _drain(self) -> None:
        self.stop()
        for name in tuple(self._timers):
            self._cancel_timer(name)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(Ack("busy", "this node is stopping"))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._worker.close)
        # A commit under way is completed before the store closes.
        await loop.run_in_executor(None, self._writer.shutdown)
        with contextlib.suppress(FednodeError):
            await self.transport.close()
        self._store.close()
