"""Claims on cells: one holder at a time, by the file system's clock, until it expires."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fednode.errors import StateError
from fednode.lab.experiment import claims
from fednode.lab.experiment.claims import EXPIRE_S, UNKNOWN, Claim, clock, holder, take

ME = f"{socket.gethostname()}:{os.getpid()}"
NOW = 1_000_000.0


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    return tmp_path / "ours_seed-1_0123.json"


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    yield
    claims.release_all()


def claimed(cell: Path, number: int = 1) -> Path:
    """Return the file of a claim."""
    return cell.with_name(f"{cell.name}.claim-{number}")


def aged(cell: Path, seconds: float, number: int = 1) -> None:
    """Let a claim be so old by the clock `at_now`."""
    os.utime(claimed(cell, number), (NOW - seconds, NOW - seconds))


def at_now(folder: Path) -> float:
    return NOW


def test_one_worker_holds_a_cell_until_it_releases_it(cell: Path) -> None:
    mine = take(cell)
    assert mine is not None
    assert holder(cell) == ME
    assert take(cell) is None
    mine.release()
    assert holder(cell) == ""
    assert list(cell.parent.iterdir()) == []
    assert not mine.renew()
    assert take(cell) is not None


@pytest.mark.parametrize(
    ("age", "expired"), [(0, False), (EXPIRE_S, False), (EXPIRE_S + 1, True), (-EXPIRE_S - 1, True)]
)
def test_a_claim_that_is_not_renewed_expires(cell: Path, age: float, expired: bool) -> None:
    """A time in the future is one of a clock that was set back."""
    old = take(cell)
    assert old is not None
    aged(cell, age)
    assert holder(cell, at_now) == ("" if expired else ME)
    new = take(cell, at_now)
    assert (new is not None) == expired
    assert old.renew() == (not expired)


def test_who_took_over_keeps_the_cell(cell: Path) -> None:
    """The first holder was stopped for long, and goes on."""
    old = take(cell)
    aged(cell, EXPIRE_S + 1)
    new = take(cell, at_now)
    assert old is not None
    assert new is not None
    assert not old.renew()
    old.release()
    assert new.renew()
    assert take(cell) is None
    new.release()
    assert list(cell.parent.iterdir()) == []


def test_a_renewed_claim_lives_on(cell: Path) -> None:
    mine = take(cell)
    assert mine is not None
    os.utime(claimed(cell), (1.0, 1.0))
    assert holder(cell) == ""
    assert mine.renew()
    assert holder(cell) == ME
    claimed(cell).unlink()
    assert not mine.renew(), "its file is gone"


def test_claims_are_renewed_without_being_asked(
    cell: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "RENEW_S", 0.001)
    renewed = threading.Event()
    real = Claim.renew

    def renew(self: Claim) -> bool:
        found = real(self)
        renewed.set()
        return found

    monkeypatch.setattr(Claim, "renew", renew)
    mine = take(cell)
    assert mine is not None
    assert renewed.wait(30)
    mine.release()


@pytest.mark.parametrize("expired", [False, True])
def test_of_many_workers_one_wins(tmp_path: Path, expired: bool) -> None:
    """Threads that begin together, at 30 cells; once with a claim that all find expired."""
    for at in range(30):
        cell = tmp_path / f"{at}.json"
        if expired:
            claimed(cell).write_text("dead:1")
            os.utime(claimed(cell), (1.0, 1.0))
        gate, won = threading.Barrier(8), list[Claim]()

        def work(cell: Path = cell, gate: threading.Barrier = gate, won: list[Claim] = won) -> None:
            gate.wait(30)
            mine = take(cell)
            if mine is not None:
                won.append(mine)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len(won) == 1
        won[0].release()
    assert list(tmp_path.iterdir()) == []


def test_a_view_that_became_stale_wins_nothing(cell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker saw an expired claim; before it acts, another takes over, ends and releases all."""
    real = claims._last
    views = iter([(1, "dead:1", 1.0)])
    monkeypatch.setattr(claims, "_last", lambda one: next(views, None) or real(one))
    assert take(cell) is None
    assert list(cell.parent.iterdir()) == []


def test_times_are_the_file_system_s(cell: Path) -> None:
    probe = cell.with_name("probe")
    first = clock(cell.parent)
    probe.touch()
    assert first <= probe.stat().st_mtime <= clock(cell.parent)


def test_a_holder_that_has_not_written_its_name(cell: Path) -> None:
    claimed(cell).touch()
    assert holder(cell) == UNKNOWN


def test_a_process_that_ends_gives_all_back(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert take(tmp_path / name) is not None
    claims.release_all()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, cell: Path) -> None:
    said = r"Claims in .* cannot be read and written: .*with --out\."
    with pytest.raises(StateError, match=said):
        take(tmp_path / "gone/a.json")
    claimed(cell).touch()

    def full(_: Path) -> float:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StateError, match=said):
        holder(cell, full)
