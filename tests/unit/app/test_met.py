"""Members with leases are greeted after a restart; the file of them is believed in nothing."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.app.met import Met
from fednode.core.members.table import Member
from fednode.core.types import Update
from fednode.identity.lease import DAY_S, armour
from tests.unit.identity.people import LISTED, NOW, STRANGER, A, B, lease, revocation, trust

LEASES = {"a": lease("a", A), "b": lease("b", B)}


def member(name: str, state: str = "alive", address: str = "10.0.0.1:7100") -> Member:
    return Member(name=name, state=state, address=address, proof=LEASES.get(name, b""))


def news(name: str) -> Update:
    return Update(name, "alive", 0, "10.0.0.1:7100", LISTED[name], LEASES[name])


def test_members_with_leases_are_remembered_and_no_others(tmp_path: Path) -> None:
    met, file = Met(tmp_path / "met"), tmp_path / "met"
    assert met.remembered(trust({})) == []
    met.note([member("a", "dead"), member("b"), member("c"), member("d", address="")])
    assert Met(file).remembered(trust({})) == [news("a"), news("b")]
    met.note([member("a", "left"), member("b")])
    assert Met(file).remembered(trust({})) == [news("b")]
    met.note([member("b", "revoked")])
    assert file.read_text() == ""
    assert file.stat().st_mode & 0o077 == 0


def test_the_file_is_written_only_when_something_changed(tmp_path: Path) -> None:
    file = tmp_path / "met"
    Met(file).note([member("a")])
    again = Met(file)
    again.remembered(trust({}))
    file.unlink()
    again.note([member("a")])
    assert not file.exists()
    again.note([member("a", address="10.0.0.2:7100")])
    assert "10.0.0.2:7100" in file.read_text()


def test_leases_that_ended_and_revoked_keys_are_not_greeted(tmp_path: Path) -> None:
    Met(tmp_path / "met").note([member("a"), member("b")])
    late = trust({}, clock=lambda: NOW + 91 * DAY_S)
    assert Met(tmp_path / "met").remembered(late) == []
    knowing = trust({})
    knowing.take_revocation(revocation("a", A))
    assert Met(tmp_path / "met").remembered(knowing) == [news("b")]


def test_lines_that_are_not_what_a_node_writes_are_left_out(tmp_path: Path) -> None:
    forged = armour(lease("b", STRANGER, signer=B))
    good, other = armour(LEASES["a"]), armour(LEASES["b"])
    lines = [
        "junk",
        "b 10.0.0.1:7100 junk",
        f"b 10.0.0.1:7100 {forged}",
        f"b nowhere {other}",
        f"c 10.0.0.1:7100 {other}",
        f"a 10.0.0.1:7100 {good}",
    ]
    (tmp_path / "met").write_text("\n".join(lines))
    assert Met(tmp_path / "met").remembered(trust({})) == [news("a")]
    (tmp_path / "met").write_bytes(b"\xff")
    assert Met(tmp_path / "met").remembered(trust({})) == []


def test_a_disk_that_takes_nothing_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    met = Met(tmp_path / "gone" / "met")
    with caplog.at_level(logging.WARNING):
        met.note([member("a")])
        met.note([member("a")])
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == [
        "Members are not remembered"
    ]


@pytest.mark.parametrize("days", [-20_000, -1, 100, 400, 30_000])
def test_a_start_with_a_wrong_clock_forgets_no_member(tmp_path: Path, days: float) -> None:
    file = tmp_path / "met"
    Met(file).note([member("a"), member("b")])
    held = sorted(file.read_text().splitlines())
    wrong = Met(file)
    assert wrong.remembered(trust({}, clock=lambda: NOW + days * DAY_S)) == []
    for known in ([], [Member(name="a", state="dead", address="10.0.0.1:7100")], [member("b")]):
        wrong.note(known)
        assert sorted(file.read_text().splitlines()) == held
    wrong.note([member("a", "left"), member("b")])
    assert Met(file).remembered(trust({})) == [news("b")]


@pytest.mark.parametrize(("days", "stays"), [(454, True), (456, False)])
def test_a_member_goes_a_year_after_its_lease_ended(tmp_path: Path, days: int, stays: bool) -> None:
    file, later = tmp_path / "met", NOW + days * DAY_S
    Met(file).note([member("a")])
    again = Met(file)
    again.remembered(trust({}))
    new = lease("b", B, issued=later, expires=later + DAY_S)
    again.note([replace(member("b"), proof=new)])
    assert file.read_text().count("\n") == 1 + stays
