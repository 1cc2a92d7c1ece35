"""The ledger: who gets which name, whatever else happens to the file at the same time."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from fednode.enrolment.ledger import DAY_S, ApprovalPending, Ledger, TokenReused
from fednode.errors import ConfigError, IdentityError, StateError
from tests.unit.storage.failing import Crash, FailingDisk, Way

NOW = 1_800_000_000.0
KEY = b"key"
AT = "127.0.0.1:7101"


def ledger(folder: Path, now: float = NOW) -> Ledger:
    return Ledger(folder, lambda: now)


def test_a_site_gets_its_name_once_and_again_if_the_answer_was_lost(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.invite("b", KEY, 7)
    assert book.invitations() == {KEY: "b"}
    book.check("b", "key-1")
    assert not book.read().holders, "a look uses nothing up"
    for _ in range(2):
        book.enrol("b", "key-1", AT)
        book.check("b", "key-1", "key-1")
    assert book.read().holders == {"b": "key-1"}
    assert ledger(tmp_path, NOW + 1800).invitations(), "its owner may ask again"
    ledger(tmp_path, NOW + 1800).enrol("b", "key-1", AT)
    assert ledger(tmp_path, NOW + 3599).invitations()
    assert not ledger(tmp_path, NOW + 3601).invitations()


def test_a_copied_link_is_noticed(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.invite("b", KEY, 7)
    book.enrol("b", "key-1", AT)
    for use in (book.check, partial(book.enrol, address=AT)):
        with pytest.raises(TokenReused, match="somebody else may have a copy of this link"):
            use("b", "key-2")
    assert book.read().holders == {"b": "key-1"}


def test_an_invitation_ends_with_its_days(tmp_path: Path) -> None:
    ledger(tmp_path).invite("b", KEY, 7)
    late = ledger(tmp_path, NOW + 7 * DAY_S + 1)
    assert late.invitations() == {}
    with pytest.raises(IdentityError, match="the link for 'b' has ended"):
        late.enrol("b", "key-1", AT)


def test_the_operator_accepts_a_key_or_refuses_it(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    for site in "bc":
        book.invite(site, site.encode(), 7, approve=True)
        with pytest.raises(ApprovalPending, match="the operator has to approve the key of"):
            book.enrol(site, f"key-{site}", AT)
    with pytest.raises(TokenReused):
        book.enrol("b", "thief", AT)
    with pytest.raises(ConfigError, match="No site 'b' waits; there waits: none"):
        book.settle("b", True, "another key")
    book.settle("b", True, "key-b")
    book.enrol("b", "key-b", AT)
    book.settle("c", False)
    with pytest.raises(IdentityError, match="has ended"):
        book.enrol("c", "key-c", AT)
    with pytest.raises(ConfigError, match="No site 'b' has an open invitation"):
        book.settle("b", False)


def test_a_name_belongs_to_its_key_until_it_is_removed(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.record("b", "key-1")
    with pytest.raises(ConfigError, match=r"'b' is a member already: .*`fednode remove b` first"):
        book.invite("b", b"new", 7)
    with pytest.raises(ConfigError, match="'b' is a member already"):
        book.record("b", "key-2")
    book.invite("c", b"old", 7)
    book.invite("c", b"c", 7)
    with pytest.raises(IdentityError, match="'c' belongs to another key"):
        book.enrol("c", "key-3", AT, owner="key-9")
    with pytest.raises(IdentityError, match="this key has the name 'b': a key has one name"):
        book.enrol("c", "key-1", AT)
    book.forget("b")
    book.invite("b", b"new", 7)
    book.record("b", "key-2")  # in a folder of `fednode invite --out`
    with pytest.raises(IdentityError, match="the link for 'b' has ended"):
        book.enrol("b", "key-3", AT)
    assert book.invitations() == {b"c": "c"}


def test_names_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fednode.enrolment.ledger.HOLDERS_MAX", 1)
    book = ledger(tmp_path)
    for name in "bc":
        book.invite(name, name.encode(), 7)
    for _ in range(2):
        book.enrol("b", "key-1", AT)
    with pytest.raises(IdentityError, match="1 nodes are enrolled, which is the limit"):
        book.enrol("c", "key-2", AT)


def test_invitations_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fednode.enrolment.ledger.INVITATIONS_MAX", 2)
    book = ledger(tmp_path)
    for name in "bc":
        book.invite(name, name.encode(), 7)
    book.enrol("b", "key", AT)
    book.invite("c", b"new", 7)  # in place of the one before
    with pytest.raises(ConfigError, match="2 invitations are open, or were used in the last hour"):
        book.invite("d", KEY, 7)
    ledger(tmp_path, NOW + 3601).invite("d", KEY, 7)


def test_those_that_change_it_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(16)]

    def use(name: str) -> None:
        Ledger(tmp_path).invite(name, name.encode(), 7)
        Ledger(tmp_path).enrol(name, f"key of {name}", AT)

    with ThreadPoolExecutor(2) as pool:  # the lock is between open files, as between processes
        list(pool.map(use, names))
    book = Ledger(tmp_path).read()
    assert book.holders.keys() == book.entries.keys() == {*names}


@pytest.mark.parametrize("way", ["killed", "torn", "power cut"])
def test_a_crash_at_any_call_leaves_the_old_or_the_new_ledger(tmp_path: Path, way: Way) -> None:
    for point in range(50):
        folder = tmp_path / str(point)
        ledger(folder).invite("b", KEY, 7)
        disk = FailingDisk(point, way)
        with contextlib.suppress(Crash):
            Ledger(folder, lambda: NOW, disk).enrol("b", "key-1", AT)
        book = ledger(folder)
        assert book.invitations() == {KEY: "b"}
        assert book.read().holders.keys() <= {"b"}
        book.enrol("b", "key-1", AT)  # the newcomer asks again
        assert book.read().holders == {"b": "key-1"}
        if not disk.failed:
            break
    assert point > 4


def test_a_full_disk_is_named_and_the_ledger_stays(tmp_path: Path) -> None:
    ledger(tmp_path).invite("b", KEY, 7)
    for point in range(1, 5):
        with pytest.raises(StateError, match=r"ledger.json cannot be written"):
            Ledger(tmp_path, lambda: NOW, FailingDisk(point, "full")).enrol("b", "key-1", AT)
        assert ledger(tmp_path).read().holders == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "double quotes"),
        ("[]", r"the file is \[\]"),
        ("{}", "'entries' is missing"),
        ('{"entries": {"b": {"key": 1}}, "holders": {}}', "entries.b.key is 1"),
        ('{"entries": {"b": {"key": "0g", "end": 2}}, "holders": {}}', "entries.b.key is '0g'"),
        ('{"entries": {}, "holders": {}, "more": 1}', "unknown key 'more'"),
        ('{"entries": {}, "holders": {"b": {"name": "b"}}}', "holders.b is "),
        ('{"invitations": [], "holders": []}', "'entries' is missing"),
    ],
)
def test_a_damaged_ledger_is_named_and_kept(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "ledger.json").write_text(text)
    with pytest.raises(StateError, match=f"damaged, or of another version of fednode .*{said}"):
        ledger(tmp_path).invite("b", KEY, 7)
    assert (tmp_path / "ledger.json").read_text() == text


def test_a_change_is_noticed(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    stamps = [book.stamp()]
    book.invite("b", KEY, 7)
    stamps.append(book.stamp())
    book.settle("b", False)
    stamps.append(book.stamp())
    assert len(set(stamps)) == 3
    assert book.stamp() == stamps[-1]
