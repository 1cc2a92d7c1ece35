"""What a node needs under other settings, and a switch that a crash interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fednode.app.documents import DocumentFolder
from fednode.app.network import join
from fednode.app.plan import NodePlan, facts_of, learner_of, private, under
from fednode.app.switching import anew, bind, changed, complete, parts_under, prepare
from fednode.core.types import Snapshot
from fednode.identity.document import peek
from fednode.storage.store import Store
from tests.unit.app.documents import content, document
from tests.unit.app.founders import founded

OTHER = {"policy": {"name": "fedpgp"}}
LONGER = {"rounds": {"max": 30}}


def known(plan: NodePlan, **changes: object) -> tuple[DocumentFolder, str]:
    folder, proof = DocumentFolder.of(plan.state, plan.peers), document(plan, 1, settings=changes)
    return folder, folder.keep(proof, peek(proof)).digest


def test_a_learner_is_used_again_if_the_same_settings_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    learner = learner_of(plan.settings, "a")
    folder, digest = known(plan, **LONGER)
    ready = prepare(folder.known[digest], plan, learner)
    assert (ready.learner, ready.anew) == (learner, False)
    assert ready.plan.settings.rounds.max == 30
    folder, digest = known(plan, policy={"name": "gda"})
    ready = prepare(folder.known[digest], plan, learner)
    assert ready.learner is not learner
    assert ready.anew


@pytest.mark.parametrize(
    ("settings", "begins"),
    [(LONGER, False), (OTHER, True), ({"seed": 9}, True), ({"rounds": {"start": {}}}, False)],
)
def test_which_changes_begin_the_rounds_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], begins: bool
) -> None:
    plan = founded(tmp_path, monkeypatch)
    assert anew(plan, changed(plan, content(plan, 1, settings=settings))) == begins


def test_where_averages_weigh_a_round_by_their_number_more_rounds_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = under(founded(tmp_path, monkeypatch), content(founded_plan(tmp_path), 1))
    assert not anew(plan, changed(plan, content(plan, 1, settings=LONGER)))
    trip = under(plan, content(plan, 1, settings={"policy": {"name": "trip"}}))
    assert anew(trip, changed(trip, content(trip, 2, settings=LONGER)))


def founded_plan(folder: Path) -> NodePlan:
    from fednode.app.plan import make

    files = folder / "ward"
    return make(files / "peers.yaml", files / "node.yaml", None, (), None)


def run_before(plan: NodePlan) -> Snapshot:
    """Let a node adopt a round of its own settings."""
    store = Store(plan.state)
    learner = private(plan, learner_of(plan.settings, "a"))
    facts = facts_of(plan, learner)
    store.bind({"name": "a", **facts})
    parts = parts_under(plan, join(plan), learner, "process")(None)
    state = parts.policy.state()
    held = Snapshot(replace(state, round=4), {"loss": 1.0}, redone=2, released=7)
    store.commit(held)
    store.close()
    return held


@pytest.mark.parametrize("committed", [False, True])
def test_a_crash_between_the_switch_and_the_new_run_is_made_good_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    plan = founded(tmp_path, monkeypatch)
    run_before(plan)
    folder, digest = known(plan, **OTHER)
    folder.begin(digest, anew=True)
    after = founded_plan(tmp_path)
    assert after.policy.name == "fedpgp"
    learner = private(after, learner_of(after.settings, "a"))
    for _ in range(2 if committed else 1):  # the second time as after a crash before `bound`
        store = Store(plan.state)
        complete(after, join(after), store, learner, "process")
        held = store.latest()
        assert held is not None
        assert (held.policy.round, held.released) == (0, 7)
        assert held.redone >= 3
        store.bind({"name": "a", **facts_of(after, learner)})
        store.close()
        assert list(plan.state.glob("runs/1/tensors/*"))
        assert not (plan.state / "runs/2").exists()
        found = DocumentFolder.of(plan.state, plan.peers)
        assert not found.unbound
        found.begin(digest, anew=True)


def test_a_crash_before_a_longer_run_was_noted_keeps_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    before = run_before(plan)
    folder, digest = known(plan, **LONGER)
    folder.begin(digest)
    after = founded_plan(tmp_path)
    learner = private(after, learner_of(after.settings, "a"))
    store = Store(plan.state)
    complete(after, join(after), store, learner, "process")
    assert store.latest() == before
    assert not DocumentFolder.of(plan.state, plan.peers).unbound
    store.close()
    assert not (plan.state / "runs").exists()


def test_nothing_is_completed_where_nothing_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    before = run_before(plan)
    folder, digest = known(plan, **LONGER)
    folder.begin(digest)
    learner, store = private(plan, learner_of(plan.settings, "a")), Store(plan.state)
    bind(store, folder, plan, learner)
    facts = store._journal.settings()
    complete(plan, join(plan), store, learner, "process")
    assert store.latest() == before
    assert store._journal.settings() == facts
    store.close()
