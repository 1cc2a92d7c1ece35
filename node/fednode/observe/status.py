"""The Node service: it answers status, history and the operator's commands."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, cast, get_args

import grpc

from fednode.core.events import Command, Level
from fednode.core.members.table import LIVE
from fednode.core.rate_limit import Quota
from fednode.core.settings import LimitSettings
from fednode.errors import ConfigError, IdentityError, Refused
from fednode.learn.learner import Learner
from fednode.observe import audience, client, reply, summary
from fednode.observe.classes import Classes
from fednode.observe.events import LEVELS, Events
from fednode.observe.reply import About, Admission, NodeView
from fednode.storage.store import Store
from fednode.wire.gen import status_pb2, status_pb2_grpc

CALLS_NO_MORE: Final = "the certificate of this caller has ended, or its key was revoked"
HISTORY_MAX: Final = 1000
SPONSOR: Final = "sponsor"
"""The command that gives a node the right to admit newcomers, with a proof of the mesh key."""
REVOKE: Final = "revoke"
"""The command that passes on a revocation, which the mesh key signed."""
WATCHERS_MAX: Final = 16
WATCHERS_EACH: Final = 4
"""Watch streams of one member at a time; the operator has WATCHERS_MAX of its own."""
ASKS_S: Final = 10.0
"""Questions of one member per second, on average."""
MEASURED_IN: Final = 200
"""After a restart, the latest accuracies are taken from this many rounds before it."""


class NodeService(status_pb2_grpc.NodeServicer):
    """Answer from the kernel's view; a call never waits for tuning."""

    def __init__(
        self,
        store: Store,
        about: About,
        caller: Callable[[Any], str | None] = lambda _: "",
        events: Events | None = None,
        dial: client.Dial | None = None,
        admits: Callable[[str], str] = lambda _: "",
        working: Callable[[], str] = lambda: "",
    ) -> None:
        """Set up; until `attach` the node is loading.

        caller: returns the id of a call; "" without keys, None if no id belongs to the call.
        events: of the node, made before its driver.
        dial: None if peers must not be asked.
        admits: returns why an id is no member's, "" if it is; checked at each answer, because
        connections outlive certificates and revocations. working: returns what the node loads or
        encodes now.
        """
        self._admits, self._working = admits, working
        self._dial = dial
        self._store, self._caller, self.about = store, caller, about
        self._began = time.monotonic()
        self._watchers: Counter[str] = Counter()
        self._quota = Quota(LimitSettings(messages_s=ASKS_S))
        self.events, self.page = events or Events(), ""
        self.admission: Admission | None = None
        """The admission of newcomers; None in a mesh without keys."""
        self.privacy: Callable[[], str] = lambda: ""
        """Returns what privacy the node has spent; "" if it has no noise."""
        self.comparison: Callable[[], tuple[list[str], list[int]]] = lambda: ([], [])
        """Returns the newest sentences on what the mesh brings, or how to get them, and counts."""
        self._node: NodeView | None = None
        self._learner: Learner | None = None
        self._classes = Classes()

    def attach(self, node: NodeView, learner: Learner) -> None:
        """Answer from this node from now on."""
        self._node, self._learner = node, learner
        latest = node.view().round
        for row in self._store.history(max(0, latest - MEASURED_IN), MEASURED_IN + 1):
            node.telemetry.measure(row.metrics, row.round)

    @property
    def name(self) -> str:
        return self.about.name

    def register(self, server: Any) -> None:
        status_pb2_grpc.add_NodeServicer_to_server(self, server)

    async def Status(
        self, request: status_pb2.StatusRequest, context: Any
    ) -> status_pb2.StatusReply:
        return self.now(member=bool(await self._admit(context)))

    async def _known(self, context: Any) -> str | None:
        """Return the id of a call; end the call if its key is no member's any more."""
        caller = self._caller(context)
        why = self._admits(caller) if caller else CALLS_NO_MORE if caller is None else ""
        if why:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        return caller

    async def _admit(self, context: Any) -> str:
        """Return the id of the member that asks, "" for the operator; end too frequent calls.

        The operator shows the node's own key. Without keys anybody on this machine may be the
        operator.
        """
        caller = await self._known(context)
        if caller in {"", self.about.node_id}:
            return ""
        over = self._quota.refuse(str(caller), 0, asyncio.get_running_loop().time())
        if over:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, over)
        return str(caller)

    def now(self, member: bool = False) -> status_pb2.StatusReply:
        """Return the present status of the node. member: without what only the operator sees."""
        about, learner = self.about, self._learner
        reply_now = reply.loading(about, time.monotonic() - self._began, self.page)
        reply_now.working = self._working()
        sentences, counts = self.comparison()
        if counts and (about.tells_gain or not member):  # the control has no noise of privacy.clip
            images, difference, squares = counts
            reply_now.gain.images = images
            reply_now.gain.difference, reply_now.gain.squares = difference, squares
        notes = [about.caution] if about.caution else []
        membership = "" if self.admission is None else self.admission.warning()
        warnings = [membership] if membership else []
        if self._node is not None and learner is not None:
            reply_now.MergeFrom(reply.running(self._node, learner, about))
            spent = [text for text in (self.privacy(),) if text]
            notes += [*learner.notes, *spent, *self._classes.said(learner.classes)]
            warnings += learner.warnings
        if member:
            seen = None if self._node is None or learner is None else learner.announced
            hidden = len(notes) + len(warnings)
            reply_now = audience.for_members(reply_now, hidden, about.tells_classes, seen)
        else:
            reply_now.compared.extend(sentences)
            reply_now.notes.extend(notes)
            reply_now.warnings.extend(warnings)
        reply_now.notes.extend(summary.paths(reply_now))
        return reply_now

    async def history(self, since: int, limit: int = HISTORY_MAX) -> status_pb2.HistoryReply:
        """Return the figures of at most HISTORY_MAX rounds from `since` on, oldest first."""
        loop = asyncio.get_running_loop()
        most = min(limit, HISTORY_MAX)
        rows = await loop.run_in_executor(None, self._store.history, since, most)
        return status_pb2.HistoryReply(
            rounds=[
                status_pb2.Round(
                    round=number,
                    metrics=metrics,
                    traffic=status_pb2.Traffic(**traffic),
                    digest=digest,
                )
                for number, metrics, traffic, digest in rows
            ]
        )

    async def ask(self, names: Sequence[str]) -> dict[str, status_pb2.StatusReply]:
        """Return the status of some peers; peers that do not answer soon are left out."""
        if self._node is None or self._dial is None:
            return {}
        return await client.ask(self._dial, self._node.addresses, names)

    async def compare_classes(self) -> None:
        """Ask the peers that answer for their class names, unless they told them lately."""
        seen = () if self._node is None else self._node.view().peers
        heard = [peer.name for peer in seen if peer.state in {*LIVE, "refused"}]
        await self._classes.look(heard, self.ask, asyncio.get_running_loop().time())

    def command(self, command: Command) -> str:
        """Pass a command to the kernel; return what the node does. Raise Refused while it loads."""
        self._running().command(command)
        return f"{self.name} was asked to {command}"

    async def Peers(self, request: status_pb2.PeersRequest, context: Any) -> status_pb2.PeersReply:
        """Return every peer as this node sees it; none while the node loads."""
        await self._admit(context)
        reply = status_pb2.PeersReply(peers=self.now().peers)
        known = {} if self._node is None else {one.name: one for one in self._node.view().peers}
        for peer in reply.peers:
            peer.id, peer.certificates = known[peer.name].id, known[peer.name].proof
        return reply

    async def Settings(
        self, request: status_pb2.SettingsRequest, context: Any
    ) -> status_pb2.SettingsReply:
        """Return the settings that all nodes of the mesh share, as this node has them."""
        await self._admit(context)
        about = self.about
        return status_pb2.SettingsReply(name=about.name, mesh=about.mesh, settings=about.shared)

    async def Watch(
        self, request: status_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[status_pb2.Event]:
        """Yield the stored events, then new events if the request says so.

        A member gets the events that the mesh needs (fednode.observe.audience).
        """
        caller = await self._admit(context)
        level = request.level or "info"
        if level not in LEVELS:
            text = f"there is no level {level[:40]!r}; there are {', '.join(LEVELS)}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        most = WATCHERS_EACH if caller else WATCHERS_MAX
        if self._watchers[caller] >= most:
            text = f"{most} watch this node already; try again later"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._watchers[caller] += 1
        try:
            logged = self.events.follow(request.since, cast("Level", level), request.follow)
            async with contextlib.aclosing(logged) as events:
                async for event in events:
                    await self._known(context)
                    if not caller or audience.told(event.record):
                        yield audience.event_of(event)
        finally:
            self._watchers[caller] -= 1
            self._watchers += Counter()  # forget zeros

    async def History(
        self, request: status_pb2.HistoryRequest, context: Any
    ) -> status_pb2.HistoryReply:
        """Return the figures of past rounds, at most 1,000 a call."""
        await self._admit(context)
        return await self.history(request.since, request.limit or HISTORY_MAX)

    async def Control(
        self, request: status_pb2.ControlRequest, context: Any
    ) -> status_pb2.ControlReply:
        """Pass a command to the kernel, or take a proof; return what the node does."""
        if request.command == SPONSOR:  # the mesh key decides, whoever brings its word
            await self._admit(context)
        elif (caller := self._caller(context)) not in {"", self.about.node_id}:
            text = f"only the key of {self.name!r} itself may command it, not {caller}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        text = ""
        try:
            text = self._obey(request.command, request.proof)
        except Refused as fault:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(fault))
        except (ConfigError, IdentityError) as fault:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(fault))
        return status_pb2.ControlReply(text=text)

    def _obey(self, command: str, proof: bytes) -> str:
        """Do what is asked; raise Refused, ConfigError or IdentityError if it cannot be done."""
        known = (*get_args(Command), REVOKE)
        if command == SPONSOR:
            if self.admission is None:
                raise IdentityError("this mesh has no keys, so no node of it admits newcomers")
            return self.admission.take_certificate(proof)
        if command not in known:
            raise ConfigError(f"there is no command {command!r}; there are {', '.join(known)}")
        if command != REVOKE:
            return self.command(cast("Command", command))
        return f"{self.name} tells everyone that {self._running().revoke(proof)} is revoked"

    def _running(self) -> NodeView:
        if self._node is None:
            raise Refused(f"{self.name} is still loading its model and images; ask again soon")
        return self._node
