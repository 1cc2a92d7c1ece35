"""Settings documents in a running node: believed, judged, prepared, accepted, in force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from fednode.app.documents import DocumentFolder, Known
from fednode.app.founding import mesh_key_of
from fednode.app.network import client_of
from fednode.app.plan import SUMS, SUMS_MAX, NodePlan
from fednode.app.settling import Settling
from fednode.app.switching import Ready
from fednode.core.documents import AHEAD_MAX
from fednode.core.events import Decided, Offered
from fednode.core.members.table import Member
from fednode.core.types import Document, Terms
from fednode.errors import ConfigError, FednodeError, IdentityError
from fednode.identity import lease as leases
from fednode.identity.document import sign
from fednode.identity.trust import Trust
from fednode.learn.closed_form import ClosedFormSums
from fednode.learn.learner import Learner
from fednode.settings.peers import PeerEntry
from fednode.storage.store import Store
from tests.unit.app.documents import content, document
from tests.unit.app.founders import MESH, founded, identity_of
from tests.unit.app.settlings import Scene, attached, prepared, scene
from tests.unit.identity.people import LISTED, MESH_KEY, A

LONGER = {"rounds": {"max": 30}}
OTHER = {"policy": {"name": "fedpgp"}}


def offered(made: Scene, proof: bytes) -> str:
    """Let a peer pass a document on; return its digest."""
    found = made.settling.checked(proof)
    assert found is not None
    made.driver.kernel.documents.offered(found)
    made.settling.offered(found)
    return found.digest


async def test_a_document_waits_for_its_operator_and_is_taken_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        digest = offered(made, document(made.plan, 1, settings=LONGER, start=7))
        await prepared(made)
        assert made.driver.decided == []
        assert "a proposes settings 1, from round 7 on: rounds.max: 3 -> 30" in made.driver.texts[0]
        (shown,) = made.settling.shown().proposals
        assert (shown.decision, shown.changes[0]) == ("", "rounds.max: 3 -> 30")
        said = await made.settling.take("")
        assert said == "a accepts settings 1: they hold from round 7 on"
        assert made.driver.decided == [(digest, True)]
        assert made.settling.shown().proposals[0].decision == "accepted"
        assert DocumentFolder.of(made.plan.state, made.plan.peers).accepted == {digest}
        said = await made.settling.refuse(digest[:8])  # until it is in force
        assert "a refuses settings 1 and goes on under its own" in said
        assert made.driver.decided[1:] == [(digest, False)]
        assert made.settling.shown().proposals[0].decision == "refused"


async def test_who_runs_under_which_settings_is_shown_without_members_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        digest, next_one = (offered(made, document(made.plan, number)) for number in (1, 2))
        documents = made.driver.kernel.documents
        documents.decided(digest, True)
        documents.begun(digest, 1)
        made.driver.seen.peers = (
            *(Member(name=name, state="alive") for name in ("b", "c", "d", "e")),
            Member(name="gone", state="left"),
            Member(name="out", state="revoked"),
        )
        documents.heard("b", Terms(digest, "", next_one))
        documents.heard("c", Terms("", digest, digest))
        documents.heard("d", Terms("", "", next_one))
        for name in ("gone", "out"):
            documents.heard(name, Terms("", "", digest))
        shown = made.settling.shown()
        assert shown.members == {"b": "runs", "c": "accepted", "d": "undecided", "e": "silent"}
        assert shown.others == ("c", "d")
        assert [one.undecided for one in shown.proposals] == [("b", "d")]


async def test_the_rule_of_a_site_accepts_what_it_says_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDNODE_ALLOW__ROUNDS", "30")
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        digest = offered(made, document(made.plan, 1, settings=LONGER))
        offered(made, document(made.plan, 2, settings=OTHER))
        await prepared(made)
        assert made.driver.decided == [(digest, True)]
        assert "this node's rule accepts them" in made.driver.texts[0]
        assert "allow.policies does not name 'fedpgp'" in made.driver.texts[1]


async def test_what_this_node_cannot_run_is_not_accepted_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDNODE_ALLOW__POLICIES", "[gda, nothing]")
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        offered(made, document(made.plan, 1, settings={"policy": {"name": "nothing"}}))
        await prepared(made)
        (shown,) = made.settling.shown().proposals
        assert "Under settings 1 of the mesh" in shown.fault
        assert shown.decision == ""
        with pytest.raises(ConfigError, match="Under settings 1 of the mesh"):
            await made.settling.take("1")
        assert made.driver.decided == []
        assert made.settling.plan == made.plan
        assert "settings 1 are not accepted" in made.driver.texts[-1]


async def test_a_proposer_accepts_what_it_proposes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        said = await made.settling.propose(document(made.plan, 1, settings=LONGER, start=4))
        assert said == "a accepts settings 1: they hold from round 4 on"
        first, second = made.driver.posted
        assert isinstance(first, Offered)
        assert second == Decided(first.document.digest, accepts=True)
        for number, text in ((2 + AHEAD_MAX, "may be at most"), (2, "Under settings 2")):
            wrong = {"policy": {"name": "nothing"}} if number == 2 else OTHER
            with pytest.raises(ConfigError, match=text):
                await made.settling.propose(document(made.plan, number, settings=wrong))
        assert len(made.driver.posted) == 2
        made.settling.switch(first.document)
        made.driver.kernel.documents.begun(first.document.digest, 4)
        with pytest.raises(ConfigError, match="settings 1 are in force: propose them again"):
            await made.settling.propose(first.document.proof)


async def test_documents_that_are_not_to_be_believed_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        plan, trust = made.plan, made.network.trust
        assert isinstance(trust, Trust)
        good = document(plan, 1)
        own = content(plan, 1)
        elsewhere = leases.right(MESH_KEY, MESH, "a", identity_of(plan).id, own.issued)
        sets = {**own.settings, "data": {"path": "/etc"}}
        for proof in (
            b"",
            good[:-1],
            good + b" ",
            bytes(64) + good[64:],
            sign(identity_of(plan).key, elsewhere, own),  # another mesh key
            document(plan, 1, settings={"data": sets["data"]}),  # a site's own setting
            document(plan, 1, settings={"tuning": {"lr": 1}}),
        ):
            assert made.settling.checked(proof) is None
        found = made.settling.checked(good)
        assert found == Document(1, found.digest if found else "", 0, good)
        with pytest.raises(IdentityError):
            await made.settling.propose(good[:-1])
        gone = leases.Statement(
            kind="revocation", mesh=MESH, name="a", id=identity_of(plan).id, issued=own.issued
        )
        trust.take_revocation(leases.sign(mesh_key_of(plan), gone))
        assert made.settling.checked(document(plan, 2)) is None
        assert made.driver.posted == []


async def test_what_is_decided_must_be_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        with pytest.raises(ConfigError, match="No other settings are proposed"):
            await made.settling.take("")
        offered(made, document(made.plan, 3, settings=LONGER))
        with pytest.raises(ConfigError, match=r"No proposed settings are called '4'.*there are 3"):
            await made.settling.refuse("4")


async def test_accepted_settings_are_prepared_again_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    with scene(plan) as made:
        await attached(made)
        digest = offered(made, document(plan, 1, settings=OTHER))
        await made.settling.take("1")
    with scene(plan) as made:
        assert made.settling.folder.documents.accepted == set()
        await attached(made)
        assert made.driver.decided == [(digest, True)]


async def test_a_switch_makes_the_plan_the_learner_and_the_files_those_of_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        made.store.bind({"policy.name": "promptfl"})
        shown = list[Learner]()
        made.settling.swapped = shown.append
        found = made.settling.checked(document(made.plan, 1, settings={"policy": {"name": "gda"}}))
        assert found is not None
        made.settling.offered(found)
        await made.settling.take("1")
        learning = made.settling.switch(found)
        assert learning.learner.schema == ClosedFormSums("a").schema
        assert made.settling.plan.policy.name == "gda"
        assert made.settling.folder.unbound, "the old run is still what the journal holds"
        parts = made.settling.under(found.digest, cast("Any", None))
        assert (parts.context.policy, parts.begins) == ("gda", True)
        assert parts.facts["policy.name"] == "gda"
        made.settling.committed()
        assert not DocumentFolder.of(made.plan.state, made.plan.peers).unbound
        made.store.close()
        again = Store(made.plan.state)
        again.bind({"name": "a", **parts.facts})  # else: made with other settings
        again.close()
        assert "name: gda" in (made.plan.state / "settings.yaml").read_text()
        made.settling.begun(found)
        assert [one.schema for one in shown] == [learning.learner.schema]


async def test_the_relays_of_a_document_hold_as_soon_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        relays = (("127.0.0.1:9", LISTED["b"]),)
        digest = offered(made, document(made.plan, 1, relays=relays, settings=LONGER))
        await made.settling.take("1")
        found = made.settling.folder.known[digest].document
        made.settling.switch(found)
        tls = made.network.tls
        assert tls is not None
        assert tls.links is not None
        assert tls.links.links == []
        made.settling.begun(found)
        assert [link.address for link in tls.links.links] == ["127.0.0.1:9"]
        # Commands of this machine take the same relays, which peers.yaml does not name.
        client = client_of(made.plan.peers, made.plan.state)
        asked: Any = client._transport and client._transport._tls
        assert [link.address for link in asked.links.links] == ["127.0.0.1:9"]
        await client.close()


async def test_a_document_is_prepared_and_taken_with_the_peers_that_the_node_goes_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_peer(name: str) -> Callable[[NodePlan], NodePlan]:
        def change(plan: NodePlan) -> NodePlan:
            assert plan.own is not None
            more = PeerEntry(name, "127.0.0.1:9", LISTED["b"])
            peers = replace(plan.own.peers, peers=(*plan.own.peers.peers, more))
            return replace(plan, peers=peers, own=replace(plan.own, peers=peers))

        return change

    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        made.network.go_by(with_peer("before"))
        digest = offered(made, document(made.plan, 1, settings=LONGER))
        await made.settling.take("1")
        assert "before" in [one.name for one in made.settling._ready[digest].plan.others]
        made.network.go_by(with_peer("after"))
        made.settling.switch(made.settling.folder.known[digest].document)
        parts = made.settling.under(digest, cast("Any", None))
        assert {"before", "after"} <= set(parts.context.peers)
        assert made.network.admission is not None
        assert made.network.admission.plan is made.network.plan is made.settling.plan
        assert made.settling.plan.settings.rounds.max == 30


async def test_peers_that_accepted_settings_cannot_take_are_a_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crowded(plan: NodePlan) -> NodePlan:
        assert plan.own is not None
        more = tuple(
            PeerEntry(f"n{at}", f"10.0.0.1:{at}") for at in range(1, SUMS_MAX["means"] + 1)
        )
        peers = replace(plan.own.peers, peers=(*plan.own.peers.peers, *more))
        return replace(plan, peers=peers, own=replace(plan.own, peers=peers))

    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        assert made.settling.fault(crowded(made.plan)) == ""
        first = offered(made, document(made.plan, 1, settings={"policy": {"name": SUMS}}))
        await made.settling.take("1")
        assert first in made.settling._ready
        assert made.settling.fault(made.plan) == ""
        said = made.settling.fault(crowded(made.plan))
        assert said.startswith("Under settings 1, which this node accepted: peers.yaml lists 251")
        # The file changed while the node was preparing.
        await made.settling.refuse("1")
        prepares = made.settling._prepared

        def slowly(known: Known) -> Ready:
            ready = prepares(known)
            made.network.go_by(crowded)
            return ready

        monkeypatch.setattr(made.settling, "_prepared", slowly)
        with pytest.raises(ConfigError, match=r"peers\.yaml lists 251 nodes"):
            await made.settling.take("1")
        assert made.settling._ready == {}


async def test_more_rounds_let_the_run_go_on_with_the_same_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        made.store.bind({"rounds.max": "3"})
        found = made.settling.checked(document(made.plan, 1, settings=LONGER))
        assert found is not None
        made.settling.offered(found)
        await made.settling.take("1")
        made.settling.switch(found)
        assert made.settling.learner is made.learner
        assert not made.settling.folder.unbound
        assert made.settling.plan.settings.rounds.max == 30


async def test_a_switch_that_cannot_be_written_down_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(founded(tmp_path, monkeypatch)) as made:
        await attached(made)
        offered(made, document(made.plan, 1, settings=LONGER))
        await made.settling.take("1")
        (known,) = made.settling.folder.known.values()

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("fednode.storage.disk.os.fsync", full)
            with pytest.raises(FednodeError, match="cannot be written"):
                made.settling.switch(known.document)
        assert made.settling.plan == made.plan
        assert made.settling.folder.force == ""
        made.settling.switch(known.document)
        assert made.settling.folder.force == known.document.digest


def test_a_mesh_without_keys_believes_no_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    proof = document(plan, 1)
    with scene(plan) as made:
        made.network.trust = A  # type: ignore[assignment]  # no Trust
        assert isinstance(made.settling, Settling)
        assert made.settling.checked(proof) is None
