"""Meshes whose settings documents change while they run, for the tests beside this file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fednode.core.events import Offered
from fednode.core.settings import RoundSettings, StartSettings
from fednode.core.types import Document
from fednode.lab.simulate.checkers import ALL
from fednode.learn.closed_form import ClosedFormLearner
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.exchange import ZeroDFL
from fednode.sim.setup import Setup
from fednode.sim.world import World
from tests.unit.sim.meshes import Kind, promptfl

PROMPTFL = promptfl()
ZERODFL = Kind(ZeroDFL, ZeroDFLConfig(), {"context": (4, 3)})


class Amended:
    """A mesh that is switched off, and the documents that its nodes believe."""

    def __init__(
        self,
        kind: Kind = PROMPTFL,
        names: str = "abcd",
        seed: int = 1,
        accepts: Callable[[str, Document], bool | None] = lambda _, __: True,
        **rounds: Any,
    ) -> None:
        self.world, self.names = World(seed), names
        self.world.checkers = [made() for made in ALL]
        given = {"max": 20, "start": StartSettings(timeout_s=5.0), "deadline_s": 10.0, **rounds}
        settings = RoundSettings(**given)
        self.setup = Setup(policy=kind.policy, config=kind.config, rounds=settings, counted=True)
        learners = {name: ClosedFormLearner(name, samples=10, shapes=kind.shapes) for name in names}
        self.world.place(self.setup, learners)
        for name, host in self.world.hosts.items():
            host.desk.decide = partial(accepts, name)

    def document(
        self, number: int, start: int, kind: Kind | None = None, **rounds: Any
    ) -> Document:
        """Return a document of a change of the first settings, which all nodes believe."""
        proof = f"{number} {start} {kind} {rounds}".encode()
        digest = hashlib.sha256(proof).hexdigest()[:32]
        changed = replace(self.setup, rounds=replace(self.setup.rounds, **rounds))
        if kind is not None:
            changed = replace(changed, policy=kind.policy, config=kind.config)
        self.setup.amended[digest] = changed
        document = Document(number, digest, start, proof)
        self.world.signed[proof] = document
        return document

    def propose(self, name: str, document: Document) -> None:
        """Let a node's operator propose a document, and accept it."""
        self.world.hosts[name].desk.decided[document.digest] = True
        self.world.tell(name, Offered(document))

    def forces(self) -> dict[str, int]:
        """Return the number of the document under which each node that is on runs."""
        on = [name for name, host in self.world.hosts.items() if host.kernel is not None]
        return {name: self.world.kernel(name).documents.force.number for name in on}
