"""A running node reads its peers.yaml again after a change: members, addresses, ids, revocations.

The node's own address may change, too: it listens there first, then tells its peers. All other keys
hold from the next start. A file that is wrong changes nothing, and the node says once what is wrong
with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fednode.app.network import NodeNetwork, trust_of
from fednode.app.plan import NodePlan, disagreements, placed
from fednode.core.events import Level, Record, Relisted
from fednode.core.types import Update
from fednode.data.base import PartitionSettings
from fednode.errors import AddressError, ConfigError, IdentityError
from fednode.identity.lease import disarm
from fednode.identity.listed import Listed
from fednode.identity.trust import Trust
from fednode.runtime.driver import Driver
from fednode.settings.again import PeersFile
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import settings_of

LOOK_S: Final = 2.0
"""Time between two looks at the file. A change counts once two looks find the same file."""
FIXED: Final = ("mesh", "mesh_key", "insecure")
"""Keys that make another mesh: nothing of a file that changes them is taken."""
LATER: Final = ("introducer", "sponsors", "relays")
"""Keys that hold from the next start."""
KEPT: Final = "the node goes on with the peers that it has"


class Watching:
    """The peers.yaml of a node that runs."""

    def __init__(
        self,
        mesh: NodeNetwork,
        node: Driver,
        fault: Callable[[NodePlan], str] = lambda _: "",
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up.

        fault: returns why the node cannot run with a plan; "" if it can. moved: is called after the
        node's own address changed.
        """
        assert mesh.plan.own is not None
        self._file, self._held = PeersFile(mesh.plan.own.place), mesh.plan.own.peers
        self._mesh, self._node, self._fault, self._moved = mesh, node, fault, moved

    async def watch(self) -> None:
        """Look at the file, for as long as the node runs."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                new = await asyncio.to_thread(self._file.look)
                if new is not None:
                    await self.move(new)
                    self.take(new)
            except ConfigError as fault:
                self._say("warning", f"{' '.join(str(fault).splitlines())} Until then {KEPT}.")

    async def move(self, new: Peers) -> None:
        """Listen at the node's own address of a new peers.yaml; raise ConfigError if that fails."""
        self._check(new)
        before, after = self._mesh.plan.listen, self._planned(self._mesh.plan, new).listen
        if before == after:
            return
        try:
            await self._mesh.transport.move(after)
        except AddressError as fault:
            raise ConfigError(
                f"{self._file.place} gives this node another address: {fault}."
            ) from None

    def take(self, new: Peers) -> None:
        """Go on with the members of a new peers.yaml; raise ConfigError if that cannot be."""
        held, trust, address = self._held, self._mesh.trust, self._mesh.plan.address
        self._check(new)
        trust_of(new)  # raises ConfigError for a wrong revocation
        before, after = self._others(held), self._others(new)
        ids = {name: trust.id_of(name) for name in before}
        assert isinstance(trust, Trust | Listed)
        trust.relist({peer.name: peer.id or "" for peer in new.peers})
        gone = [name for name in before if name not in after and not trust.id_of(name)]
        for id in ids.values():
            if id and not trust.name_of(id):
                self._mesh.transport.turn_away(id, 0.0)  # it may come back, if it is listed again
        for line in new.revoked:
            if line not in held.revoked:
                with contextlib.suppress(IdentityError):  # its signer was revoked meanwhile
                    self._node.revoke(disarm(line))
        changes = [
            (peer, *_changed(before.get(name), peer))
            for name, peer in after.items()
            if before.get(name) != peer
        ]
        news = tuple(
            Update(peer.name, "alive", 0, address, trust.id_of(peer.name))
            for peer, address, _ in changes
        )
        self._held = new
        self._mesh.go_by(lambda plan: self._planned(plan, new))
        own = self._mesh.plan.address if self._mesh.plan.address != address else ""
        if news or gone or own:
            self._node.post(Relisted(news, tuple(gone), own))
        texts = [*(text for *_, text in changes), *(f"{name} is gone" for name in gone)]
        if own:
            self._moved()
            texts.append(f"this node is reached at {own}")
        if texts:
            self._say("info", f"{self._file.place} was read again: {', '.join(texts)}")
        later = [key for key in LATER if getattr(new, key) != getattr(held, key)]
        later += self._later(held, new, own)
        if later:
            what = ", ".join(later)
            grows = "relays" in later and new.mesh_key is not None
            hint = " (relays: `fednode settings propose` changes those of all nodes)" * grows
            self._say("warning", f"{self._file.place} changed {what}: restart the node{hint}")

    def _planned(self, plan: NodePlan, new: Peers) -> NodePlan:
        """Return a plan with a new peers.yaml, but for what holds from the next start."""
        assert plan.own is not None
        kept = {key: getattr(plan.peers, key) for key in LATER}
        fixed = {key: getattr(plan.own.peers, key) for key in LATER}
        own = replace(plan.own, peers=replace(new, **fixed))
        return replace(plan, peers=replace(new, **kept), own=own)

    def _later(self, before: Peers, after: Peers, own: str) -> list[str]:
        """Return what changed for the node itself and does not hold yet, in words."""
        was, now = self._own(before), self._own(after)
        if was is None or now is None:
            return []
        share = ["this node's share of the images (data.partition)"]
        shares = share if self._share(before) != self._share(after) else []
        if was == now:
            return shares
        overruled = was.address != now.address and not own
        key = "reach" if self._mesh.plan.settings.reach == "relay" else "advertise"
        found = [f"this node's address (which its {key} overrules)"] if overruled else []
        return [*shares, *found, *(["this node's id"] if was.id != now.id else [])]

    def _share(self, peers: Peers) -> PartitionSettings:
        """Return the node's share of a common data set by its place in a peers.yaml."""
        plan = self._mesh.plan
        assert plan.own is not None
        return placed(settings_of(plan.own.written), peers, plan.name).data.partition

    def _check(self, new: Peers) -> None:
        fixed = [key for key in FIXED if getattr(new, key) != getattr(self._held, key)]
        if fixed:
            raise ConfigError(
                f"{self._file.place} changed {', '.join(fixed)}, which makes another mesh: restart "
                "the node, or take the change back."
            )
        if self._own(self._held) and not self._own(new):
            raise ConfigError(
                f"{self._file.place} does not list this node, {self._name!r}, any more: add "
                "its entry again, or end the node with `fednode leave`."
            )
        plan = self._planned(self._mesh.plan, new)
        faults = disagreements(plan) or [text for text in (self._fault(plan),) if text]
        if faults:
            raise ConfigError(" ".join(faults))

    @property
    def _name(self) -> str:
        return self._mesh.plan.name

    def _own(self, peers: Peers) -> PeerEntry | None:
        return next((peer for peer in peers.peers if peer.name == self._name), None)

    def _others(self, peers: Peers) -> dict[str, PeerEntry]:
        return {peer.name: peer for peer in peers.peers if peer.name != self._name}

    def _say(self, level: Level, text: str) -> None:
        self._mesh.refusals.show(Record("peers.listed", text, level))


def _changed(before: PeerEntry | None, after: PeerEntry) -> tuple[str, str]:
    """Return the new address of an entry, "" if it is the old one, and what changed in words."""
    if before is None:
        return after.address, f"{after.name} is new"
    what = [key for key in ("address", "id") if getattr(before, key) != getattr(after, key)]
    address = after.address if "address" in what else ""
    return address, f"{after.name} has another {' and '.join(what)}"
