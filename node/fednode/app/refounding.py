"""Take back a mesh that was founded on this machine, as long as nobody joined it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from fednode.admission.register import Register
from fednode.app.admission import FOLDER
from fednode.app.founding import mesh_key_file
from fednode.app.joining import PEERS, set_aside
from fednode.app.network import IDENTITY, KEPT
from fednode.errors import ConfigError, FednodeError, StateError
from fednode.identity import keys
from fednode.settings.peers import load_peers
from fednode.storage.disk import because, lock


@dataclass(frozen=True, slots=True)
class Founded:
    """A mesh that nobody joined. states: directories of its nodes here. folder: of its settings."""

    key: Path
    states: tuple[Path, ...]
    folder: Path | None

    @property
    def doomed(self) -> tuple[Path, ...]:
        """Return what is deleted."""
        return (self.key, *self.states)

    def delete(self) -> list[Path]:
        """Delete key and states; return the names under which the old settings are kept.

        Raise StateError if a node of it runs, before anything is deleted.
        """
        held = [lock(state) for state in self.states]
        try:
            kept = [] if self.folder is None else set_aside(self.folder)
            for state in self.states:
                shutil.rmtree(state)
            self.key.unlink()  # last, so that the same command ends what was cut short
        except OSError as fault:
            raise StateError(
                f"{fault.filename or self.key} cannot be deleted: {because(fault)}; mend that and "
                "run this again."
            ) from fault
        finally:
            for descriptor in held:
                os.close(descriptor)
        return kept


def founded(mesh: str, folder: Path) -> Founded | None:
    """Return what is here of a mesh that nobody joined; None if there is nothing.

    folder: where its settings would lie. Raise ConfigError if somebody joined, or if the folder
    or a state directory is of something else.
    """
    key = mesh_key_file(mesh)
    states = tuple(sorted(path for path in key.parent.glob("*") if path.is_dir()))
    if not key.exists():
        if states or folder.exists():
            place = folder.resolve() if folder.exists() else states[0]
            raise ConfigError(
                f"{place} is of no mesh that was founded on this machine: take another name, or "
                "run this in another folder."
            )
        return None
    joined = sorted({name for state in states for name in _joined(mesh, state)})
    if joined:
        raise ConfigError(
            f"{', '.join(joined)} joined {mesh!r}, so it cannot be founded again: take another "
            "name for another mesh."
        )
    if folder.exists() and not _is_of(folder, key):
        raise ConfigError(
            f"{folder.resolve()} holds no settings of the mesh {mesh!r} that was founded here: run "
            "this in another folder."
        )
    return Founded(key, states, folder if folder.exists() else None)


def _joined(mesh: str, state: Path) -> list[str]:
    """Return the names of those who got a lease by this state directory, or were removed."""
    register = Register(state / FOLDER, mesh, _no_leases)
    others = [node.name for node in register.enrolled() if node.name != state.name]
    revoked = bool(register.revocations()) or (state / IDENTITY / KEPT).exists()
    return others or (["a site that was removed"] if revoked else [])


def _no_leases(_: object) -> bytes:
    raise AssertionError("nobody is enrolled here")


def _is_of(folder: Path, key: Path) -> bool:
    try:
        return load_peers(folder / PEERS).mesh_key == keys.written(keys.load(key).public_key())
    except FednodeError:
        return False
