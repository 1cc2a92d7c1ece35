"""Certificates that end and keys that are revoked while a live mesh runs its rounds over TLS."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fednode.errors import FednodeError
from fednode.identity.roster import Roster
from fednode.wire import codec
from tests.e2e.attacks import live
from tests.e2e.attacks.live import HONEST, HOSTILE, LIMIT_S, NAMES, Mesh

pytestmark = pytest.mark.e2e
DAY_S = 86_400.0


class Late(Mesh):
    """A mesh whose nodes' clocks can be set on."""

    ahead_s = 0.0

    def roster(self) -> Roster:
        """Return whom a node believes, by the clock of all nodes."""
        return self.certificates.roster(clock=lambda: time.time() + self.ahead_s)


async def answers(mesh: Mesh) -> list[str]:
    """Return what the honest nodes answer to a new connection of d, or why it fails."""
    said = codec.encode(mesh.message("prompts"), "float32")
    found, mouth = list[str](), mesh.transport(HOSTILE)
    for name in HONEST:
        try:
            found.append(codec.decode_ack(await mouth.send(mesh.at[name], said, LIMIT_S, name))[0])
        except FednodeError as fault:
            found.append(str(fault))
    await mouth.close()
    return found


async def test_a_certificate_that_ends_in_mid_round_ends_its_holders_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The honest nodes have certificates for a year; d's holds for a day of TLS's own clock."""
    monkeypatch.setattr(live, "Mesh", Late)
    credential = Late.credential

    def lasting(mesh: Mesh, name: str) -> object:
        if name == HOSTILE:
            return credential(mesh, name)
        return mesh.certificates.credential(name, days=200)

    monkeypatch.setattr(Late, "credential", lasting)
    async with live.live(tmp_path, NAMES) as mesh:
        assert isinstance(mesh, Late)
        assert await answers(mesh) == ["ok"] * len(HONEST), "the certificate holds"
        mesh.ahead_s = 100 * DAY_S
        await mesh.rounds(3)
        refused = await answers(mesh)
        assert all("certificate" in one and "ended" in one for one in refused), refused
        roster = mesh.nodes["a"].driver.members
        assert "belongs to nobody" in roster.check_member(mesh.ids[HOSTILE])
        await mesh.rounds(2)


async def test_a_revoked_key_is_out_and_a_new_key_of_its_name_comes_in(tmp_path: Path) -> None:
    async with live.live(tmp_path, NAMES) as mesh:
        assert await answers(mesh) == ["ok"] * len(HONEST)
        mesh.nodes["a"].driver.revoke(mesh.certificates.revocation(HOSTILE))
        # The others learn it from a's next messages.
        await live.until(
            lambda: all(
                "was revoked" in mesh.nodes[name].driver.members.check_member(mesh.ids[HOSTILE])
                for name in HONEST
            )
        )
        assert all("revoked" in one for one in await answers(mesh))
        await mesh.rounds(3)
        del mesh.certificates.keys[HOSTILE]
        assert not any("revoked" in one for one in await answers(mesh))
        for name in HONEST:
            members = mesh.nodes[name].driver.members
            assert members.id_of(HOSTILE) == mesh.certificates.id(HOSTILE)
