"""The introducer's register, which the mesh key signs for.

    mesh.key    the mesh key; the other files are those of a register (fednode.admission.register)

A node calls the introducer when it joins, and again when its lease is nearly over. The introducer
takes no part in the mesh, holds no prompts, and may be off while no node needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fednode.admission.files import opened
from fednode.admission.register import Register
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity import lease as leases


class Roster(Register):
    """The register of an introducer, with the mesh key."""

    def __init__(self, folder: Path, mesh: str, clock: Callable[[], float] = time.time) -> None:
        """Open the folder; create the mesh key if there is none."""
        path = folder / keys.MESH_KEY_FILE
        with opened(folder):
            self.key = keys.load(path) if path.exists() else keys.create(path)
        super().__init__(folder, mesh, lambda statement: leases.sign(self.key, statement), clock)

    @property
    def mesh_key(self) -> str:
        """The public mesh key, for peers.yaml."""
        return keys.written(self.key.public_key())

    def id_for(self, name: str) -> str:
        """Return the id of the enrolled node of a name; raise ConfigError if there is none."""
        for node in self.enrolled():
            if node.name == name:
                return node.id
        names = ", ".join(node.name for node in self.enrolled()) or "none"
        raise ConfigError(
            f"--name is {name!r}, and the names that are enrolled are {names}: give --id, too."
        )
