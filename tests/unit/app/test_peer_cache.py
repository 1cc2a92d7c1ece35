"""Members are greeted after a restart; the file of them is believed in nothing but its keys."""

from __future__ import annotations

import base64
import logging
import time
from pathlib import Path

import pytest

from fednode.app.peer_cache import PeerCache
from fednode.core.members.table import Member
from fednode.core.types import MemberUpdate
from fednode.identity.certificates import Chain
from tests.unit.identity.people import SmallMesh

DAY = 86_400
MESH = SmallMesh()
PROOFS = {name: Chain.read(MESH.chain(name)).pack() for name in "bc"}


def member(name: str, state: str = "alive", address: str = "10.0.0.1:7100") -> Member:
    return Member(name=name, state=state, address=address, proof=PROOFS.get(name, b""))


def news(name: str) -> MemberUpdate:
    return MemberUpdate(name, "alive", 0, "10.0.0.1:7100", MESH.id(name), PROOFS[name])


def test_members_with_certificates_are_remembered_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "peers"
    cache = PeerCache(file)
    assert cache.load(MESH.roster()) == []
    cache.store([member("b", "dead"), member("c"), member("d"), member("e", address="")])
    assert PeerCache(file).load(MESH.roster()) == [news("c")], "b may never have lived"
    cache.store([member("b"), member("c")])
    cache.store([member("b", "dead"), member("c")])
    assert set(PeerCache(file).load(MESH.roster())) == {news("b"), news("c")}
    cache.store([member("b", "left"), member("c")])
    assert PeerCache(file).load(MESH.roster()) == [news("c")]
    cache.store([member("c", "revoked")])
    assert file.read_text() == ""
    assert file.stat().st_mode & 0o077 == 0


def test_the_file_is_written_only_when_something_changed(tmp_path: Path) -> None:
    file = tmp_path / "peers"
    PeerCache(file).store([member("b")])
    again = PeerCache(file)
    again.load(MESH.roster())
    file.unlink()
    again.store([member("b")])
    assert not file.exists()
    again.store([member("b", address="10.0.0.2:7100")])
    assert "10.0.0.2:7100" in file.read_text()


def test_ended_certificates_and_revoked_keys_are_not_greeted(tmp_path: Path) -> None:
    file = tmp_path / "peers"
    PeerCache(file).store([member("b"), member("c")])
    assert PeerCache(file).load(MESH.roster(clock=lambda: time.time() + 91 * DAY)) == []
    knowing = MESH.roster()
    knowing.take_revocation(MESH.revocation("b"))
    assert PeerCache(file).load(knowing) == [news("c")]


def test_members_of_a_sponsor_that_is_revoked_stay_by_the_file(tmp_path: Path) -> None:
    PeerCache(tmp_path / "peers").store([member("b")])
    roster = MESH.roster()
    PeerCache(tmp_path / "peers").load(roster)
    roster.take_revocation(MESH.revocation("a"))
    assert roster.identify(MESH.chain("b"))
    assert roster.identify(MESH.chain("c")) is None


def test_lines_that_are_not_what_a_node_writes_are_left_out(tmp_path: Path) -> None:
    forged = base64.b64encode(Chain.read(SmallMesh().chain("c")).pack()).decode()
    good, other = (base64.b64encode(PROOFS[name]).decode() for name in "bc")
    lines = [
        "junk",
        "c 10.0.0.1:7100 junk",
        "c 10.0.0.1:7100 kA==",  # an empty list of certificates
        f"c 10.0.0.1:7100 {forged}",
        f"c nowhere {other}",
        f"d 10.0.0.1:7100 {other}",
        f"b 10.0.0.1:7100 {good}",
    ]
    (tmp_path / "peers").write_text("\n".join(lines))
    assert PeerCache(tmp_path / "peers").load(MESH.roster()) == [news("b")]
    (tmp_path / "peers").write_bytes(b"\xff")
    assert PeerCache(tmp_path / "peers").load(MESH.roster()) == []


def test_a_disk_that_takes_nothing_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = PeerCache(tmp_path / "gone" / "peers")
    with caplog.at_level(logging.WARNING):
        cache.store([member("b")])
        cache.store([member("b")])
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == [
        "Members are not remembered"
    ]


@pytest.mark.parametrize("days", [-20_000, -1, 100, 30_000])
def test_a_start_with_a_wrong_clock_forgets_no_member(tmp_path: Path, days: float) -> None:
    file = tmp_path / "peers"
    PeerCache(file).store([member("b"), member("c")])
    before = sorted(file.read_text().splitlines())
    wrong = PeerCache(file)
    assert wrong.load(MESH.roster(clock=lambda: time.time() + days * DAY)) == []
    for known in ([], [Member(name="b", state="dead", address="10.0.0.1:7100")], [member("c")]):
        wrong.store(known)
        assert sorted(file.read_text().splitlines()) == before


@pytest.mark.parametrize(("days", "stays"), [(2, True), (0.5, False)])
def test_a_member_goes_when_its_certificate_ended_before_a_newer_one(
    tmp_path: Path, days: float, stays: bool
) -> None:
    file = tmp_path / "peers"
    short = Chain.read(MESH.chain("d", days, dated=-1)).pack()
    PeerCache(file).store([Member(name="d", state="alive", address="10.0.0.1:1", proof=short)])
    again = PeerCache(file)
    again.load(MESH.roster())
    again.store([member("b")])
    assert file.read_text().count("\n") == len(again._lines) == 1 + stays
