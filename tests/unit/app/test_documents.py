"""The folder of settings documents: what is kept, what a crash leaves, what a damaged one says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fednode.app.documents import FOLDER, STANDING, DocumentFolder, named
from fednode.app.plan import NodePlan, make, under
from fednode.core.documents import HELD_MAX, NONE, PAST_MAX
from fednode.errors import ConfigError, StateError
from fednode.identity.document import peek
from tests.unit.app.documents import content, document
from tests.unit.app.founders import MESH, founded


def folder_of(plan: NodePlan) -> DocumentFolder:
    return DocumentFolder.of(plan.state, plan.peers)


def kept(folder: DocumentFolder, proof: bytes) -> str:
    return folder.keep(proof, peek(proof)).digest


def again(plan: NodePlan) -> NodePlan:
    files = Path.home().parent / MESH
    return make(files / "peers.yaml", files / "node.yaml", None, (), None)


def test_a_new_node_has_no_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = founded(tmp_path, monkeypatch)
    folder = DocumentFolder(tmp_path / "nowhere", MESH, plan.peers.mesh_key)
    assert folder.in_force is None
    assert folder.documents.force is NONE
    assert folder.documents.terms is None
    assert not (tmp_path / "nowhere").exists()


def test_what_was_decided_outlives_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    folder = folder_of(plan)
    one, two, three = (kept(folder, document(plan, number)) for number in (1, 2, 3))
    folder.decide(one, accepts=True)
    folder.begin(one, anew=True)
    assert folder_of(plan).unbound
    assert folder_of(plan).anew
    folder.bound()
    folder.decide(two, accepts=False)
    folder.decide(three, accepts=False)
    folder.decide(three, accepts=True)
    found = folder_of(plan)
    assert (found.force, found.accepted, found.refused) == (one, {three}, {two})
    assert (found.unbound, found.anew) == (False, False)
    core = found.documents
    assert (core.force.number, core.force.digest) == (1, one)
    assert {held.number for held in core.held.values()} == {2, 3}
    assert core.next is None  # it is prepared first
    assert core.refused == {two}
    assert core.terms is not None
    assert (core.terms.force, core.terms.accepts, core.terms.knows) == (one, "", three)
    assert (plan.state / FOLDER).stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in (plan.state / FOLDER).iterdir())


def test_older_documents_are_named_once_a_newer_one_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    folder = folder_of(plan)
    digests = [kept(folder, document(plan, number)) for number in range(1, 6)]
    folder.begin(digests[2])
    assert set(folder.known) == set(digests)
    core = folder_of(plan).documents
    assert set(core.held) == set(digests[3:])
    assert {key: one.number for key, one in core.past.items()} == dict(
        zip(digests[:2], (1, 2), strict=True)
    )
    assert not any(one.proof for one in core.past.values())


def test_of_the_documents_of_before_the_oldest_and_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    folder = folder_of(plan)
    for number in range(1, PAST_MAX + 5):
        folder.begin(kept(folder, document(plan, number)))
    last = PAST_MAX + 4
    found = [one.number for one in folder_of(plan).past]
    assert found == [1, *range(last + 1 - PAST_MAX, last)]
    assert len(list((plan.state / FOLDER).iterdir())) == PAST_MAX + 2


def test_a_value_that_a_document_of_before_brought_is_not_the_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    folder = folder_of(plan)
    folder.begin(kept(folder, document(plan, 1)))
    folder.begin(kept(folder, document(plan, 2, settings={"rounds": {"max": 30}})))
    found = again(plan)
    assert (found.settings.rounds.max, found.notes) == (30, ())
    file = Path.home().parent / MESH / "node.yaml"
    file.write_text(file.read_text().replace("max: 3", "max: 7"))
    (said,) = again(plan).notes
    assert "rounds.max is 7 there, and 30 in the settings that the mesh agreed on" in said


def test_at_most_so_many_documents_are_kept_but_no_accepted_one_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    folder = folder_of(plan)
    first = kept(folder, document(plan, 1))
    folder.decide(first, accepts=True)
    for number in range(2, HELD_MAX + 10):
        kept(folder, document(plan, number))
    assert len(folder.known) == HELD_MAX + 1
    assert first in folder.known
    assert len(list((plan.state / FOLDER).iterdir())) == HELD_MAX + 2
    assert set(folder_of(plan).known) == set(folder.known)


def test_a_document_that_a_crash_left_is_one_that_nobody_decided_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    digest = kept(folder_of(plan), document(plan, 1))
    (plan.state / FOLDER / f"{digest}.0a1b").write_text("half")
    found = folder_of(plan)
    assert (set(found.known), found.accepted, found.refused) == ({digest}, set(), set())


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda folder, digest: (folder / digest).write_text("%"), "one line of base64"),
        (lambda folder, digest: (folder / digest).write_bytes(b"\xff"), "ascii"),
        (lambda folder, digest: (folder / digest).unlink(), "the document .* is missing"),
        (lambda folder, digest: (folder / STANDING).write_text("{"), "damaged"),
        (lambda folder, digest: (folder / STANDING).write_text("[]"), "damaged"),
        (
            lambda folder, digest: (folder / digest).rename(folder / ("0" * 32)),
            "holds the document",
        ),
        (
            lambda folder, digest: (folder / STANDING).write_text(json.dumps({"accepted": 7})),
            "damaged",
        ),
    ],
)
def test_a_damaged_folder_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path, str], object], text: str
) -> None:
    plan = founded(tmp_path, monkeypatch)
    folder = folder_of(plan)
    digest = kept(folder, document(plan, 1))
    folder.begin(digest)
    spoil(plan.state / FOLDER, digest)
    with pytest.raises(StateError, match=text) as caught:
        again(plan)
    assert "restore it from a backup, or delete it" in str(caught.value)


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = founded(tmp_path, monkeypatch)
    folder = folder_of(plan)
    digest = kept(folder, document(plan, 1))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fednode.storage.disk.os.fsync", full)
    with pytest.raises(StateError, match="cannot be written"):
        folder.begin(digest)
    with pytest.raises(StateError, match="cannot be written"):
        folder.decide(digest, accepts=True)
    with pytest.raises(StateError, match="cannot be written"):
        kept(folder, document(plan, 2))
    assert (folder.force, folder.accepted) == ("", set())
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folder_of(plan).force == ""


def test_a_node_starts_under_the_document_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    assert (plan.settings.rounds.max, plan.notes) == (3, ())
    folder = folder_of(plan)
    changed = {"rounds": {"max": 30}, "policy": {"name": "fedpgp", "rank": 2}}
    folder.begin(kept(folder, document(plan, 1, settings=changed)))
    found = again(plan)
    assert (found.settings.rounds.max, found.policy.name) == (30, "fedpgp")
    assert found.policy.config.rank == 2
    assert found.settings.tuning.kind == "closed-form"  # a variable of this site
    said = " ".join(found.notes)
    assert "rounds.max is 3 there, and 30 in the settings that the mesh agreed on" in said
    assert "line 3" in said
    assert len(found.notes) == 2


def test_the_relays_of_a_document_hold_if_it_names_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    relay = ("relay.example:7800", str(plan.peers.peers[0].id))
    found = under(plan, content(plan, 2, relays=(relay,)))
    assert [(one.address, one.id) for one in found.peers.relays] == [relay]
    assert under(found, content(plan, 3)).peers.relays == ()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"policy": {"name": "nothing"}}, "Under settings 2 of the mesh: .*nothing"),
        ({"policy": {"name": "gda", "shells": 1}}, "shells"),
        ({"rounds": {"max": -1}}, r"rounds.max is -1"),
        ({"topology": {"kind": "k-regular"}}, "merge the same contributions"),
        ({"model": {"name": "local-dir:FILE"}}, "a file that each site has"),
    ],
)
def test_settings_under_which_a_node_cannot_run_get_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: object, text: str
) -> None:
    plan = founded(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=text):
        under(plan, content(plan, 2, settings=changed))


def test_a_document_is_named_by_its_number_or_the_beginning_of_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    folder = folder_of(plan)
    one = kept(folder, document(plan, 1))
    twins = [kept(folder, document(plan, 2, start=start)) for start in (5, 6)]
    known = folder.known
    assert named(known, "1") == named(known, one[:12]) == known[one]
    assert named(known, "2") is None
    assert named(known, twins[1]) == known[twins[1]]
    assert named(known, "zzzz") is None
    assert named(known, "") is None
