"""What a node shows of itself: kept on disk, renewed in time, replaced when it is rotated."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.certificate import DAYS
from fednode.identity.identity import Identity, valid_until
from fednode.identity.lease import DAY_S, disarm
from tests.unit.identity.people import LISTED, MESH, NOW, STRANGER, der, lease, trust


def identity(folder: Path, now: float = NOW) -> Identity:
    return Identity(folder, MESH, "n", lambda: now)


def test_a_key_is_made_once_and_its_certificate_is_kept(tmp_path: Path) -> None:
    first = identity(tmp_path)
    assert identity(tmp_path).id == first.id
    assert valid_until(tmp_path) == ""
    key, certificate = first.credentials()
    assert keys.node_id(key) == first.id
    assert first.credentials()[1] is certificate
    assert valid_until(tmp_path) == "2028-02-16"


def test_a_certificate_is_renewed_when_half_its_time_is_over(tmp_path: Path) -> None:
    now = [float(NOW)]
    made = Identity(tmp_path, MESH, "n", lambda: now[0])
    first = made.credentials()[1]
    now[0] += DAYS * DAY_S * 0.49
    assert made.credentials()[1] is first
    now[0] += DAYS * DAY_S * 0.02
    assert made.credentials()[1].not_valid_after_utc > first.not_valid_after_utc


def test_a_lease_is_shown_at_once_and_wanted_when_it_is_missing_or_nearly_over(
    tmp_path: Path,
) -> None:
    made = identity(tmp_path)
    assert made.wants_lease()
    before = made.credentials()[1]
    made.take_lease(lease("n", made.key))
    assert made.credentials()[1] is not before
    assert not made.wants_lease()
    assert identity(tmp_path, NOW + 61 * DAY_S).wants_lease()


@pytest.mark.parametrize(
    ("name", "mesh", "key"), [("x", MESH, None), ("n", "other", None), ("n", MESH, STRANGER)]
)
def test_a_lease_of_somebody_else_is_not_kept(
    tmp_path: Path, name: str, mesh: str, key: object
) -> None:
    made = identity(tmp_path)
    with pytest.raises(IdentityError, match="this node is 'n' of 'mesh'"):
        made.take_lease(lease(name, key or made.key, mesh=mesh))  # type: ignore[arg-type]
    assert made.lease is None


def test_rotation_makes_a_new_key_that_peers_follow(tmp_path: Path) -> None:
    made = identity(tmp_path)
    believes = trust({**LISTED, "n": made.id})
    before, after = made.rotate()
    again = identity(tmp_path)
    assert (again.id, again.id != before) == (after, True)
    assert leases.peek(again.proof).kind == "succession"
    assert believes.judge(der(again.credentials()[1]))[1] == ""
    assert believes.name_of(after) == "n"


def test_a_rotation_that_cannot_prove_its_new_key_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way round, the node would come back with a key that no peer can follow."""
    made = identity(tmp_path)
    before = made.id

    def full(path: Path, *_: object) -> None:
        raise StateError(f"{path} cannot be written: the disk is full.")

    monkeypatch.setattr("fednode.identity.identity.put", full)
    with pytest.raises(StateError, match="disk is full"):
        made.rotate()
    assert made.id == before == identity(tmp_path).id


def test_a_damaged_proof_is_named(tmp_path: Path) -> None:
    made = identity(tmp_path)
    (tmp_path / "lease").write_text("?")
    with pytest.raises(StateError, match="lease is damaged: delete it"):
        made.credentials()
    with pytest.raises(IdentityError, match="base64"):
        disarm("ä")


@pytest.mark.parametrize(
    ("days", "said"), [(-20_000, True), (-2, True), (-0.05, False), (9, False)]
)
def test_a_clock_before_the_own_certificate_is_said_and_the_certificate_stays(
    tmp_path: Path, days: float, said: bool
) -> None:
    identity(tmp_path).credentials()
    held = (tmp_path / "node.crt").read_text()
    wrong = identity(tmp_path, NOW + days * DAY_S)
    assert bool(wrong.clock_fault()) == said
    wrong.credentials()
    assert ((tmp_path / "node.crt").read_text() == held) == said
    if said:
        assert "was made on 2027-01-15: set the clock, and start the node" in wrong.clock_fault()


@pytest.mark.parametrize("text", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nAAAA\n", b"\xff"])
def test_a_damaged_certificate_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "node.crt").write_bytes(text)
    with pytest.raises(StateError, match=r"node.crt is damaged \((.|\n)*\): delete it"):
        valid_until(tmp_path)
    assert identity(tmp_path).clock_fault() == ""


def test_a_lease_that_ended_is_said_with_its_day(tmp_path: Path) -> None:
    made = identity(tmp_path)
    assert made.lease_end() == ""
    made.take_lease(lease("n", made.key))
    assert made.lease_end() == ""
    assert (
        identity(tmp_path, NOW + 91 * DAY_S)
        .lease_end()
        .startswith("The lease of this node ended on 2027-04-15, so the other members take nothing")
    )
