"""A removed site learns that it was removed, and each command of it says so."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest
import uvloop

from fednode.app.founding import mesh_key_file
from fednode.app.network import IDENTITY, KEPT, client_of, join
from fednode.app.plan import NodePlan
from fednode.app.standing import lease_end, lost_in, require_member
from fednode.errors import IdentityError, KeyRefused
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.identity import Identity
from fednode.identity.lease import DAY_S, Statement
from fednode.identity.trust import Trust
from tests.unit.app.founders import MESH, admits, founded, joined
from tests.unit.commands.run import Fednode
from tests.unit.identity.people import LISTED

GUARD_S = 180.0
SAID = "The mesh 'ward' revoked the key of this node, 'b': ask for a new link."


@pytest.fixture
def founder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodePlan:
    return founded(tmp_path, monkeypatch)


@pytest.fixture
def site(tmp_path: Path, founder: NodePlan) -> NodePlan:
    """Return the plan of a site that the founder admitted."""
    return joined(founder, tmp_path, "b")


def revocation(site: NodePlan, id: str = "") -> bytes:
    """Return the mesh key's revocation of a site's key, or of a key with an id."""
    id = id or Identity(site.state / IDENTITY, MESH, site.name).id
    statement = Statement(
        kind="revocation", mesh=MESH, name=site.name, id=id, issued=int(time.time())
    )
    return leases.sign(keys.load(mesh_key_file(MESH)), statement)


async def refused(founder: NodePlan, site: NodePlan) -> str:
    """Let a site that was removed ask the founder's node; return what it hears."""
    async with admits(founder) as network, asyncio.timeout(GUARD_S):
        network.trust.take_revocation(revocation(site))
        while True:
            async with client_of(site.peers, site.state) as client:
                with pytest.raises(KeyRefused) as fault:
                    await client.status(founder.address)
                if "revoked" in str(fault.value):  # the reason may be overtaken by the end
                    return str(fault.value)


def test_a_removed_site_learns_it_from_a_command_and_remembers_it(
    founder: NodePlan,
    site: NodePlan,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lost_in(site.state, site.peers, "b") == ""
    said = uvloop.run(refused(founder, site))
    assert "the mesh revoked this node's key: ask for a new link." in said
    assert (site.state / IDENTITY / KEPT).exists()
    assert lost_in(site.state, site.peers, "b").startswith(SAID)
    assert lost_in(founder.state, founder.peers, "a") == ""

    fednode = Fednode(capsys)
    monkeypatch.chdir(site.state.parents[4].parent / "files-b")
    own = ("--state", str(site.state))
    for words in (("start",), ("status", *own), ("status", "b", *own), ("status", "a", *own)):
        assert fednode(*words) == 4
        assert fednode.err.splitlines()[-1].startswith(f"fednode: {SAID}")
    for more in ((),):
        assert fednode("check", *more) == 2
        assert f"fault: {SAID}" in fednode.out
        assert "Nothing is wrong" not in fednode.out


def test_a_check_hears_of_a_removal_itself(
    founder: NodePlan, site: NodePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    from fednode.app.check_peers import peer_findings
    from fednode.learn.closed_form import ClosedFormLearner

    async def found() -> list[tuple[bool, str]]:
        async with admits(founder) as network, asyncio.timeout(GUARD_S):
            network.trust.take_revocation(revocation(site))
            while True:
                said = await peer_findings(site, ClosedFormLearner("b"), "", running=False)
                if any("revoked the key" in text for _, text in said):
                    return said

    assert [(good, text.startswith(SAID)) for good, text in uvloop.run(found())] == [(False, True)]


async def test_a_node_is_told_when_its_own_key_is_revoked_and_no_other(
    founder: NodePlan, site: NodePlan
) -> None:
    mesh, heard = join(site), list[str]()
    require_member(mesh)
    assert isinstance(mesh.trust, Trust)
    mesh.trust.heard = lambda: heard.append(lost_in(site.state, site.peers, "b"))
    mesh.trust.take_revocation(revocation(site, LISTED["a"]))
    assert heard == [""]
    proof = revocation(site)
    mesh.trust.take_revocation(proof)
    mesh.trust.take_revocation(proof)
    assert [bool(text) for text in heard] == [False, True]
    with pytest.raises(IdentityError, match="revoked the key of this node, 'b'"):
        require_member(mesh)
    await mesh.transport.close()


async def test_a_node_without_a_lease_is_sent_for_a_link_at_once(site: NodePlan) -> None:
    (site.state / IDENTITY / "lease").unlink()
    mesh = join(site)
    with pytest.raises(IdentityError, match="'b', has no lease: ask for a new link and run"):
        require_member(mesh)
    await mesh.transport.close()


def test_a_lease_that_ended_is_said_to_whoever_measures(
    site: NodePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lease_end(site.state) == ""
    assert lease_end(site.state / "nowhere") == ""
    later = time.time() + 91 * DAY_S
    monkeypatch.setattr("fednode.app.standing.Identity", partial(Identity, clock=lambda: later))
    assert lease_end(site.state).startswith("The lease of this node ended on 20")
