"""A node's connection to its mesh: which key of this machine may ask, and who renews a lease."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from fednode.admission import link as links
from fednode.app import network
from fednode.app.founding import mesh_key_file, mesh_key_of
from fednode.app.interfaces import Interfaces
from fednode.app.network import (
    IDENTITY,
    client_of,
    get_lease,
    join,
    key_folder,
    lease_warning,
)
from fednode.app.plan import NodePlan
from fednode.core.members.table import Member
from fednode.core.types import Update
from fednode.errors import ConfigError, FednodeError, IdentityError, Refused, Unreachable
from fednode.identity import lease as leases
from fednode.identity.enrol import Enrolled, enrol, sponsor
from fednode.identity.identity import Identity
from fednode.identity.lease import DAY_S, Statement
from fednode.runtime.door import Door
from fednode.storage.store import Store
from tests.unit.app.founders import MESH, admits, founded, joined
from tests.unit.commands.run import Fednode

AWAY = "127.0.0.1:9"


def test_any_key_of_the_mesh_on_this_machine_may_ask(fednode: Fednode, tmp_path: Path) -> None:
    root = tmp_path / ".local/state/fednode/clinic"
    with pytest.raises(ConfigError, match=f"no node of it has a key below {root}: give a node's"):
        key_folder("clinic", None)
    assert fednode("init", "--tls", "--nodes", "2", "--mesh", "clinic") == 0
    assert key_folder("clinic", None) == root / "a"
    assert key_folder("clinic", Path("b")) == root / "b"
    assert key_folder("clinic", Path("elsewhere/b")) == Path("elsewhere/b")
    (tmp_path / "b").mkdir()
    assert key_folder("clinic", Path("b")) == Path("b")
    assert fednode.fault("status").startswith("None of the 2 nodes answers (a, b)")


REFUSED = Refused("The node at a refused: this node admits nobody any more")
SILENT = Unreachable("The node at a does not answer: start it.")
STRANGE = IdentityError("The node at a cannot be believed: its key is not the one.")


@pytest.mark.parametrize("has_lease", [True, False])
@pytest.mark.parametrize(
    ("faults", "asked"),
    [
        ([], "a"),
        ([REFUSED], "ab"),
        ([STRANGE], "ab"),
        ([SILENT], "ab"),
        ([REFUSED, SILENT], "abc"),
        ([SILENT, STRANGE], "abc"),
        ([REFUSED, REFUSED, STRANGE], "abc"),
        ([SILENT, REFUSED, SILENT], "abc"),
    ],
)
async def test_all_who_may_renew_a_lease_are_asked_whatever_the_first_ones_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    faults: Sequence[FednodeError],
    asked: str,
    has_lease: bool,
) -> None:
    mesh = join(joined(founded(tmp_path, monkeypatch), tmp_path, "b"))
    if has_lease:
        mesh.identity.clock = lambda: time.time() + 80 * DAY_S
    else:
        (mesh.identity.folder / "lease").unlink()
    called, left = list[Any](), list(faults)

    async def answer(_: Identity, admitter: Any, *__: object) -> Enrolled:
        called.append(admitter)
        if left:
            raise left.pop(0)
        return Enrolled((), ())

    monkeypatch.setattr(network, "enrol", answer)
    monkeypatch.setattr(network, "admitters_of", lambda *_: list("abc"))
    monkeypatch.setattr(network, "ENROL_TRIES", 1)
    if len(faults) < 3 or has_lease:
        await get_lease(mesh)
    else:
        with pytest.raises((Refused, IdentityError)):
            await get_lease(mesh)
    assert "".join(called) == asked
    said = lease_warning(mesh)
    assert bool(said) == (len(faults) == 3 and has_lease)
    if said:
        assert "ends on 20" in said
        assert "Those who can renew it: a; start one of them." in said
        assert "`fednode sponsor b --mesh-key FILE`" in said


async def test_a_lease_that_ended_is_not_said_to_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mesh = join(joined(founded(tmp_path, monkeypatch), tmp_path, "b"))
    assert lease_warning(mesh) == ""
    mesh.identity.clock = lambda: time.time() + 95 * DAY_S
    assert lease_warning(mesh).startswith("The lease of this node ended on 20")
    await get_lease(mesh)
    assert "The lease of this node ended on 20" in caplog.text
    assert "does not answer" in caplog.text
    assert "holds for now" not in caplog.text


async def test_the_operator_asks_its_own_node_without_a_lease_and_reads_that_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    founder = founded(tmp_path, monkeypatch)
    plan = joined(founder, tmp_path, "b")
    joined(founder, tmp_path, "c")
    store = Store(plan.state)
    mesh = join(plan)
    long_ago = int(time.time()) - 95 * DAY_S
    ended = Statement(
        kind="lease", mesh=MESH, name="b", id=mesh.identity.id, issued=long_ago,
        expires=long_ago + 90 * DAY_S,
    )  # fmt: skip
    mesh.identity.take_lease(leases.sign(mesh_key_of(plan), ended))
    faces = Interfaces(plan, mesh, store)
    faces.service.standing = partial(lease_warning, mesh)
    mesh.transport.add_service(faces.register)
    try:
        await mesh.transport.listen(plan.listen, Door().on_frame)
        async with client_of(plan.peers, plan.state) as client:
            (said,) = (await client.status(plan.address)).warnings
        async with client_of(plan.peers, Path("c")) as client:
            with pytest.raises(FednodeError):
                await client.status(plan.address)
    finally:
        await mesh.transport.close()
        store.close()
    assert said.startswith("The lease of this node ended on 20")
    assert "Those who can renew it: a; start one of them." in said


def test_after_the_founder_is_lost_its_kept_key_makes_a_new_sponsor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fednode: Fednode
) -> None:
    founder = founded(tmp_path, monkeypatch)
    b, c = (joined(founder, tmp_path, name) for name in "bc")
    safe, other = tmp_path / "safe.key", tmp_path / "other.key"
    shutil.copy(mesh_key_file(MESH), safe)
    shutil.copy(founder.state / IDENTITY / "node.key", other)
    mesh_key_file(MESH).unlink()
    shutil.rmtree(founder.state)
    monkeypatch.chdir(tmp_path / "files-b")
    assert "No node of this machine admits newcomers" in fednode.fault("sponsor", "b")
    nowhere = tmp_path / "nowhere"
    assert f"there is no file {nowhere}" in fednode.fault("sponsor", "b", "--mesh-key", nowhere)
    assert "is not the key of the mesh 'ward'" in fednode.fault("sponsor", "b", "--mesh-key", other)
    assert fednode("sponsor", "b", "--mesh-key", safe) == 0
    assert fednode.out == "b may admit sites for another year, from its next start on.\n"
    assert fednode("invite", "d") == 0
    uvloop.run(_goes_on(tmp_path, b, c, links.read(fednode.out)))


async def _goes_on(folder: Path, b: NodePlan, c: NodePlan, link: links.Link) -> None:
    """Let b renew its own lease, admit d, and renew the lease of c."""
    async with admits(b) as sponsoring:
        (sponsoring.identity.folder / "lease").unlink()
        await get_lease(sponsoring)
        own = sponsoring.identity
        assert own.lease is not None
        assert own.lease.signer == own.id
        new = Identity(folder / "d", MESH, "d")
        await enrol(new, sponsor(link.addresses[0], link.made_by), AWAY, link.token.hex())
        assert new.lease is not None
        assert new.lease.signer == own.id
        mesh = join(c)
        assert mesh.admission is not None
        member = Member(name="b", state="alive", address=b.address, id=own.id, proof=own.proof)
        view = SimpleNamespace(peers=(member,))
        mesh.admission.attach(SimpleNamespace(view=lambda: view), "")  # type: ignore[arg-type]
        sponsoring.trust.believed(
            "", [Update("c", "alive", 0, AWAY, mesh.identity.id, mesh.identity.proof)]
        )
        mesh.trust.believed("", [Update("b", "alive", 0, b.address, own.id, own.proof)])
        mesh.identity.clock = lambda: time.time() + 70 * DAY_S
        await get_lease(mesh)  # the founder, whom its peers.yaml names, does not answer
        assert leases.peek(mesh.identity.proof).signer == own.id
        assert lease_warning(mesh) == ""
        await mesh.transport.close()
