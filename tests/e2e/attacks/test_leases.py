"""Leases that end and successors that are revoked while a live mesh runs its rounds over TLS."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509 import Certificate

from fednode.errors import FednodeError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.certificate import mint
from fednode.identity.lease import Kind, Statement
from fednode.identity.trust import Trust
from fednode.wire import codec
from tests.e2e.attacks import live
from tests.e2e.attacks.live import HONEST, HOSTILE, LIMIT_S, NAMES, Mesh

pytestmark = pytest.mark.e2e
MESH_KEY = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
HOUR_S = 3600


class Leased(Mesh):
    """A mesh whose peers.yaml lists a, b and c with a mesh key; d shows a proof of its own."""

    present: Ed25519PrivateKey
    proof = b""
    lists_d = False
    made: Trust | None = None
    ahead_s = 0.0

    def credentials(self, name: str) -> tuple[Ed25519PrivateKey, Certificate]:
        """Return a node's key, and a certificate of it, for d with its proof."""
        if name != HOSTILE:
            return super().credentials(name)
        return self.present, mint(self.present, name, self.proof, time.time())

    def trust(self) -> Trust:
        """Return whom a node believes: its transport asks first, and then its driver."""
        found, self.made = self.made, None
        if found is None:
            listed = {name: self.ids[name] for name in (NAMES if self.lists_d else HONEST)}
            found = Trust(
                mesh="simulated",
                listed=listed,
                mesh_key=MESH_KEY.public_key(),
                clock=lambda: time.time() + self.ahead_s,
            )
            self.made = found
        return found

    def statement(self, kind: Kind, key: Ed25519PrivateKey, expires: int = 0) -> Statement:
        """Return a statement about d and a key, dated now."""
        return Statement(
            kind=kind,
            mesh="simulated",
            name=HOSTILE,
            id=keys.node_id(key),
            issued=int(time.time()),
            expires=expires,
        )


class Lease(Leased):
    """d has a lease that ends in an hour."""

    def __init__(self, folder: Path, scene: live.Scene) -> None:
        super().__init__(folder, scene)
        self.present = self._keys[HOSTILE]
        said = self.statement("lease", self.present, int(time.time()) + HOUR_S)
        self.proof = leases.sign(MESH_KEY, said)


class Successor(Leased):
    """peers.yaml lists d's old key, which named another one as its successor."""

    lists_d = True

    def __init__(self, folder: Path, scene: live.Scene) -> None:
        super().__init__(folder, scene)
        self.present = Ed25519PrivateKey.generate()
        self.proof = self.signed(self._keys[HOSTILE], self.present)

    def signed(self, old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> bytes:
        """Return the succession of a key by another one."""
        said = replace(self.statement("succession", new), by=keys.written(old.public_key()))
        return leases.sign(old, said)


def running(
    kind: type[Leased], folder: Path, patch: pytest.MonkeyPatch
) -> AbstractAsyncContextManager[Mesh]:
    patch.setattr(live, "Mesh", kind)
    return live.live(folder, NAMES)


async def refused(mesh: Mesh) -> list[str]:
    """Return what the honest nodes answer to a new connection of d, or that it fails."""
    said = codec.encode(mesh.message("prompts"), "float32")
    found: list[str] = []
    mouth = mesh.transport(HOSTILE)
    for name in HONEST:
        try:
            found.append(codec.decode_ack(await mouth.send(mesh.at[name], said, LIMIT_S, name))[0])
        except FednodeError:
            found.append("no connection")
    await mouth.close()
    return found


async def test_a_lease_that_ends_in_mid_round_ends_its_holders_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Lease, tmp_path, monkeypatch) as mesh:
        assert isinstance(mesh, Lease)
        assert await refused(mesh) == ["stale"] * len(HONEST), "the lease holds"
        a = mesh.nodes["a"].driver
        before = a.refused().get("identity", 0)
        mesh.ahead_s = 2.0 * HOUR_S
        await mesh.rounds(3)
        assert a.refused()["identity"] > before, "on d's open connections"
        assert await refused(mesh) == ["no connection"] * len(HONEST)
        assert "its lease has ended" in a.trust.admits(mesh.ids[HOSTILE])
        await mesh.rounds(2)


async def test_a_successor_that_is_revoked_is_out_and_the_old_key_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Successor, tmp_path, monkeypatch) as mesh:
        assert isinstance(mesh, Successor)
        assert await refused(mesh) == ["stale"] * len(HONEST), "the successor speaks for d"
        gone = leases.sign(MESH_KEY, mesh.statement("revocation", mesh.present))
        for name in HONEST:
            driver = mesh.nodes[name].driver
            driver.revoke(gone)
        assert await refused(mesh) == ["no connection"] * len(HONEST)
        mesh.present, mesh.proof = mesh._keys[HOSTILE], b""
        assert await refused(mesh) == ["no connection"] * len(HONEST), "the old key"
        await mesh.rounds(3)
