"""Follow the mesh's settings documents in a running node: check, keep, decide, prepare, switch.

A document that a peer passes on is stored and shown, and judged by the site's own rule (`allow`).
It is accepted only once this node can run under it: its settings are valid here, and its model and
images are loaded. So a fault costs the operator a sentence, and the running rounds nothing.

The switch is durable before the node runs under the new document. If a crash comes in between, the
next start completes it (fednode.app.switching.complete).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fednode.app.documents import DocumentFolder, Known, document_of, named
from fednode.app.network import NodeNetwork, relays_of
from fednode.app.parts import learning_of
from fednode.app.plan import NodePlan, private
from fednode.app.sums import sums_fault
from fednode.app.switching import Ready, anew, bind, changed, parts_under, prepare, renewed, unfit
from fednode.core import events as ev
from fednode.core.documents import AHEAD_MAX, order
from fednode.core.members.table import GONE
from fednode.core.run import Parts
from fednode.core.types import Document, PolicyState
from fednode.data.base import Told, silent
from fednode.errors import ConfigError, FednodeError, IdentityError, StateError
from fednode.identity.document import Content, digest_of, read
from fednode.identity.trust import Trust
from fednode.learn.learner import Learner
from fednode.observe.settings import Proposal, Shown
from fednode.runtime.driver import Driver
from fednode.runtime.worker import Learning
from fednode.settings.agreed import is_shared
from fednode.settings.differences import in_words, refusal
from fednode.storage.store import Store

if TYPE_CHECKING:  # the accountant's library takes a moment to load
    from fednode.learn.private import PrivateLearner

CONTENTS_MAX: Final = 64
"""Documents whose content is kept between the arrival of a message and the kernel's answer."""
LOG: Final = logging.getLogger("fednode")


class Settling:
    """The settings documents of one running node; fednode.runtime.settling says what a driver asks.

    swapped: is told the learner after a switch.
    """

    def __init__(
        self,
        mesh: NodeNetwork,
        store: Store,
        learner: Learner,
        boot: str,
        working: Told = silent,
    ) -> None:
        """Set up. learner: of the plan, without privacy. boot: what this start drew."""
        self.folder = DocumentFolder.of(mesh.plan.state, mesh.plan.peers)
        self.swapped: Callable[[Learner], None] = lambda _: None
        self._mesh, self._store, self._boot = mesh, store, boot
        self.learner, self._working = learner, working
        self._wrapped: PrivateLearner | None = None
        self._beginning = store.beginning()
        self._anew = False
        self._node: Driver | None = None
        self._contents: dict[str, Content] = {}  # of documents that are not kept yet
        self._ready: dict[str, Ready] = {}
        self._preparing: dict[str, asyncio.Task[None]] = {}
        self._faults: dict[str, str] = {}  # why a document cannot be accepted, by its digest
        self._loading = asyncio.Lock()

    @property
    def plan(self) -> NodePlan:
        """The plan under the document in force."""
        return self._mesh.plan

    def attach(self, node: Driver) -> None:
        """Follow documents in this node; prepare again what was accepted before the start."""
        self._node = node
        for digest in sorted(self.folder.accepted):
            self._begin_accepting(digest)

    async def prepared(self) -> None:
        """Wait until what was accepted before the start can be run under, or cannot."""
        if self._preparing:
            await asyncio.wait(set(self._preparing.values()))

    def fault(self, plan: NodePlan) -> str:
        """Return why the node cannot run with a plan, now or as it accepted; "" if it can."""
        for digest, ready in tuple(self._ready.items()):  # the writer's thread changes it
            known = self.folder.known.get(digest)
            if known is not None and (why := unfit(ready, plan, known.content)):
                return f"Under settings {known.content.number}, which this node accepted: {why}"
        return sums_fault(plan, self.learner)

    # What the driver asks (fednode.runtime.settling.Settling) -------------------------------------

    def checked(self, proof: bytes) -> Document | None:
        """Return a document that a peer sent; None if it is not to be believed."""
        known = self.folder.known.get(digest_of(proof))
        if known is not None:
            return known.document
        try:
            return document_of(proof, self._believed(proof))
        except IdentityError as fault:
            self._mesh.refusals.note("document", "", f"settings that a peer passes on: {fault}")
            return None

    def offered(self, document: Document) -> None:
        """Store a document that this node did not know, tell people, and judge it by the rule."""
        content = self._contents.pop(document.digest, None)
        if content is None or document.digest in self.folder.known:
            return
        try:
            self.folder.keep(document.proof, content)
        except StateError as fault:
            LOG.warning("Settings %d of the mesh are not kept: %s", document.number, fault)
            return
        found = changed(self.plan, content)
        why = refusal(self.plan.settings.allow, found, dict(content.settings))
        said = f"{content.signer} proposes settings {content.number}, from round {content.start} on"
        lines = "; ".join(in_words(found, anew(self.plan, found)))
        rest = "this node's rule accepts them" if not why else f"look at `fednode settings`: {why}"
        level: ev.Level = "warning" if why else "info"
        self._say("settings.offered", f"{said}: {lines}; {rest}", level, content.number)
        if not why:
            self._begin_accepting(document.digest)

    def switch(self, document: Document) -> Learning:
        """Make a document the one in force; as fednode.runtime.settling.Settling says."""
        known = self.folder.known[document.digest]
        ready = self._ready.pop(document.digest, None) or self._prepared(known)
        wrapped = private(ready.plan, ready.learner)
        learning = learning_of(ready.plan, wrapped)
        self.folder.begin(document.digest, ready.anew)
        self._mesh.go_by(lambda now: renewed(ready.plan, now, known.content))
        self.learner, self._wrapped = ready.learner, wrapped
        self._anew = ready.anew
        if ready.anew:
            self._beginning = None
        else:
            self.committed()
        newer = self._newer(document)
        self._ready = {key: one for key, one in self._ready.items() if key in newer}
        return learning

    def begun(self, document: Document) -> None:
        """Show people that a document is in force."""
        assert self._wrapped is not None
        if self._mesh.tls is not None and self._mesh.tls.links is not None:
            self._mesh.tls.links.change(relays_of(self.plan.peers))
        if self._mesh.admission is not None:
            self._mesh.admission.offer(document.proof)
        self.swapped(self._wrapped)

    def committed(self) -> None:
        """Tie the state directory to the settings in force, if it is not tied to them yet."""
        if self.folder.unbound and self._wrapped is not None:
            try:
                bind(self._store, self.folder, self.plan, self._wrapped)
            except StateError as fault:
                LOG.warning("The new settings are not written down yet: %s", fault)

    def under(self, digest: str, state: PolicyState) -> Parts:
        """Return the parts under the document that `switch` made the one in force."""
        assert self._wrapped is not None
        parts = parts_under(self.plan, self._mesh, self._wrapped, self._boot)
        return parts(state, beginning=self._beginning, begins=self._anew)

    # What the operator asks -----------------------------------------------------------------------

    async def propose(self, proof: bytes) -> str:
        """Take a document that the operator signed: accept it here, and pass it on.

        Raise IdentityError or ConfigError if nobody would take it, or this node cannot run under
        it; then nobody hears of it.
        """
        content = self._believed(proof)
        document = document_of(proof, content)
        least = self.folder.documents.force
        if order(document) <= order(least):
            raise ConfigError(
                f"These are settings {content.number}, and settings {least.number} are in force: "
                "propose them again, with a higher number."
            )
        if content.number > least.number + AHEAD_MAX:
            raise ConfigError(
                f"These are settings {content.number}, and the number may be at most "
                f"{least.number + AHEAD_MAX}."
            )
        known = Known(document, content)
        ready = await self._made_ready(known)
        self.folder.keep(proof, content)
        self._ready[document.digest] = ready
        self._post(ev.Offered(document))
        return self._decide(known, accepts=True)

    async def take(self, which: str) -> str:
        """Accept a document, once this node can run under it; return what happens then.

        which: its number, or the beginning of its digest; "" for the newest. Raise ConfigError with
        the reason if this node cannot run under it; then nothing has changed.
        """
        known = self._chosen(which)
        if known.document.digest not in self._ready:
            task = self._begin_accepting(known.document.digest)
            await asyncio.shield(asyncio.wait({task}))
            fault = self._faults.get(known.document.digest, "")
            if fault:
                raise ConfigError(fault)
            return self._will(known)
        return self._decide(known, accepts=True)

    async def refuse(self, which: str) -> str:
        """Refuse a document: the node goes on under the settings in force."""
        return self._decide(self._chosen(which), accepts=False)

    def shown(self) -> Shown:
        """Return what status and page show."""
        core = None if self._node is None else self._node.kernel.documents
        peers = () if self._node is None else self._node.view().peers
        there = {peer.name for peer in peers if peer.state not in GONE}
        told = {} if core is None else {p: t for p, t in core.told.items() if p in there}
        least = self.folder.documents.force if core is None else core.force
        force = self.folder.known.get(least.digest)
        newer = sorted(
            self._newer(least).values(), key=lambda one: order(one.document), reverse=True
        )
        return Shown(
            number=least.number,
            digest=least.digest,
            signer="" if force is None else force.content.signer,
            proposals=tuple(
                self._proposal(
                    one,
                    accepts=tuple(
                        sorted(p for p, t in told.items() if t.accepts == one.document.digest)
                    ),
                    runs=tuple(
                        sorted(p for p, t in told.items() if t.force == one.document.digest)
                    ),
                    undecided=tuple(
                        sorted(
                            p
                            for p in told
                            if core and core.standing(p, one.document) == "undecided"
                        )
                    ),
                )
                for one in newer
            ),
            others=tuple(sorted(p for p, t in told.items() if t.force != least.digest)),
            start=least.start,
            members={p: core.standing(p, least) for p in sorted(there)} if core else {},
        )

    def _proposal(
        self,
        known: Known,
        accepts: tuple[str, ...],
        runs: tuple[str, ...],
        undecided: tuple[str, ...],
    ) -> Proposal:
        content, digest = known.content, known.document.digest
        found = changed(self.plan, content)
        decision = "refused" if digest in self.folder.refused else ""
        decision = "accepted" if digest in self.folder.accepted else decision
        return Proposal(
            number=content.number,
            digest=digest,
            signer=content.signer,
            start=content.start,
            changes=tuple(in_words(found, anew(self.plan, found))),
            decision="preparing" if digest in self._preparing else decision,
            accepted_by=accepts,
            run_by=runs,
            undecided=undecided,
            fault=self._faults.get(digest, ""),
        )

    def _newer(self, least: Document) -> dict[str, Known]:
        """Return the documents that are kept and newer than one, by digest."""
        return {
            digest: one
            for digest, one in self.folder.known.items()
            if order(one.document) > order(least)
        }

    def _chosen(self, which: str) -> Known:
        newer = self._newer(self.folder.documents.force)
        if not newer:
            raise ConfigError("No other settings are proposed: nothing is to be decided.")
        if not which:
            return max(newer.values(), key=lambda one: order(one.document))
        known = named(newer, which)
        if known is None:
            said = ", ".join(f"{one.content.number} ({key[:12]})" for key, one in newer.items())
            raise ConfigError(
                f"No proposed settings are called {which[:40]!r}, or several are: there are {said}."
            )
        return known

    # Preparing ------------------------------------------------------------------------------------

    def _believed(self, proof: bytes) -> Content:
        """Return what a document says; raise IdentityError if it is not to be believed."""
        digest, trust = digest_of(proof), self._mesh.trust
        held = self._contents.get(digest)
        if held is not None:
            return held
        if not isinstance(trust, Trust) or trust.mesh_key is None:
            raise IdentityError("this mesh has no mesh key, so nobody signs settings for it")
        clock = self._mesh.identity.clock
        content = read(proof, trust.mesh_key, trust.is_revoked, trust.mesh, clock())
        if not is_shared(content.settings):
            raise IdentityError(
                f"{content.signer!r} signed settings that are a site's own, or of another version"
            )
        if len(self._contents) >= CONTENTS_MAX:
            self._contents.clear()
        self._contents[digest] = content
        return content

    def _begin_accepting(self, digest: str) -> asyncio.Task[None]:
        """Prepare a kept document on a thread, then accept it; a fault is noted and shown."""
        task = self._preparing.get(digest)
        if task is None:
            task = asyncio.ensure_future(self._accept(self.folder.known[digest]))
            self._preparing[digest] = task
            task.add_done_callback(lambda _: self._preparing.pop(digest, None))
        return task

    async def _accept(self, known: Known) -> None:
        digest = known.document.digest
        self._faults.pop(digest, None)
        try:
            ready = await self._made_ready(known)
            if fault := unfit(ready, self.plan, known.content):  # peers.yaml changed meanwhile
                raise ConfigError(fault)
            self._ready[digest] = ready
            self._decide(known, accepts=True)
        except FednodeError as fault:
            self._faults[digest] = str(fault)
            text = f"settings {known.content.number} are not accepted: {fault}"
            self._say("settings.unfit", text, "warning", known.content.number)

    async def _made_ready(self, known: Known) -> Ready:
        async with self._loading:  # one model at a time
            return await asyncio.to_thread(self._prepared, known)

    def _prepared(self, known: Known) -> Ready:
        return prepare(known, self.plan, self.learner, self._working)

    def _decide(self, known: Known, accepts: bool) -> str:
        digest = known.document.digest
        self.folder.decide(digest, accepts)
        if not accepts:
            self._ready.pop(digest, None)
        self._post(ev.Decided(digest, accepts))
        if accepts:
            return self._will(known)
        return (
            f"{self.plan.name} refuses settings {known.content.number} and goes on under its own, "
            "without the sites that accept them"
        )

    def _will(self, known: Known) -> str:
        content = known.content
        return (
            f"{self.plan.name} accepts settings {content.number}: they hold from round "
            f"{content.start} on"
        )

    def _post(self, event: ev.Event) -> None:
        if self._node is not None:
            self._node.post(event)

    def _say(self, kind: str, text: str, level: ev.Level, number: int) -> None:
        if self._node is not None:
            self._node.telemetry.record(ev.Record(kind, text, level, {"settings": number}))
