"""Leases of other members outlive the process, and a file of them is believed in nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.identity import keys
from fednode.identity import seen as module
from fednode.identity.lease import DAY_S, armour
from fednode.identity.seen import Seen
from tests.unit.identity.people import LISTED, NOW, STRANGER, A, B, lease, revocation, trust
from tests.unit.identity.test_trust import shown

ID = keys.node_id(STRANGER)


def test_leases_outlive_a_restart_and_are_checked_again(tmp_path: Path) -> None:
    file = tmp_path / "leases"
    before = trust({})
    before.remember_in(file)
    assert shown(before, STRANGER, proof=lease("s", STRANGER)) == ""
    assert shown(before, STRANGER, proof=lease("s", STRANGER)) == ""
    assert len(file.read_text().splitlines()) == 1, "a lease is written once"
    after = trust({})
    after.recall(file)
    assert (after.id_of("s"), after.name_of(ID)) == (ID, "s")
    late = trust({}, clock=lambda: NOW + 91 * DAY_S)
    late.remember_in(file)
    assert late.id_of("s") == ""
    assert len(file.read_text().splitlines()) == 1, "a lease that ended stays"
    revoked = trust({})
    revoked.take_revocation(revocation("s", STRANGER))
    revoked.recall(file)
    assert revoked.id_of("s") == ""


def test_what_is_no_lease_of_the_mesh_key_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "leases"
    forged, good = lease("b", B, signer=B), lease("s", STRANGER)
    file.write_bytes(
        b"\xff junk\n" + f"junk\nAAAA\n{armour(forged)}\n{armour(good)}\n".encode() + b"torn"
    )
    believes = trust({})
    believes.remember_in(file)
    assert (believes.id_of("b"), believes.id_of("s")) == ("", ID)
    new = lease("a", A)
    assert shown(believes, A, proof=new) == ""
    assert file.read_text() == f"{armour(good)}\n{armour(new)}\n"
    assert file.stat().st_mode & 0o077 == 0


def test_only_the_newest_lease_of_a_name_is_kept(tmp_path: Path) -> None:
    believes = trust({})
    believes.remember_in(tmp_path / "leases")
    for day in range(3):
        proof = lease("s", STRANGER, issued=NOW - (3 - day) * DAY_S)
        assert shown(believes, STRANGER, proof=proof) == ""
    assert len((tmp_path / "leases").read_text().splitlines()) == 3
    again = trust({})
    again.remember_in(tmp_path / "leases")
    new = lease("a", A)
    assert shown(again, A, proof=new) == ""
    assert (tmp_path / "leases").read_text() == f"{armour(proof)}\n{armour(new)}\n"


@pytest.mark.parametrize("days", [-20_000, -1, 100, 400, 4_000, 30_000])
def test_a_start_with_a_wrong_clock_forgets_no_lease(tmp_path: Path, days: float) -> None:
    file, clock = tmp_path / "leases", [float(NOW)]
    before = trust({})
    before.remember_in(file)
    for name, key in (("s", STRANGER), ("b", B)):
        assert shown(before, key, proof=lease(name, key)) == ""
    held = file.read_text()
    clock[0] += days * DAY_S
    wrong = trust({}, clock=lambda: clock[0])
    wrong.remember_in(file)
    assert file.read_text() == held
    clock[0] = NOW
    assert wrong.id_of("s") == ID, "the clock was set right while the node ran"
    assert shown(wrong, A, proof=lease("a", A)) == ""
    after = trust({})
    after.remember_in(file)
    assert [after.id_of(name) for name in "sab"] == [ID, *LISTED.values()]


@pytest.mark.parametrize(("days", "stays"), [(454, True), (456, False)])
def test_a_lease_goes_a_year_after_it_ended(tmp_path: Path, days: int, stays: bool) -> None:
    file, later = tmp_path / "leases", NOW + days * DAY_S
    before = trust({})
    before.remember_in(file)
    assert shown(before, STRANGER, proof=lease("s", STRANGER)) == ""
    after = trust({}, clock=lambda: later)
    after.remember_in(file)
    new = lease("b", B, issued=later, expires=later + DAY_S)
    assert shown(after, B, at=later, proof=new) == ""
    assert (armour(lease("s", STRANGER)) in file.read_text()) == stays


def test_a_file_has_a_bound_and_may_be_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LINES_MAX", 2)
    seen = Seen(tmp_path / "leases")
    for number in range(4):
        seen.add(bytes([number]), bool)
    assert list(seen.proofs()) == [b"\0", b"\1"]
    gone = Seen(tmp_path / "gone" / "leases")
    gone.add(b"1", bool)
    gone.add(b"2", bool)
    assert list(gone.proofs()) == []
    assert "leases are not kept" in caplog.text
