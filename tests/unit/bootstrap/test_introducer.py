"""The introducer: who gets a lease, who does not, and what newcomers are told."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ssl
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.admission import calls
from fednode.admission.calls import ASKED_MAX
from fednode.admission.files import LOCK_FILE
from fednode.admission.tokens import Tokens
from fednode.errors import ConfigError, IdentityError, Refused, StateError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.certificate import mint
from fednode.identity.enrol import CONTACTS_MAX, enrol, introducer, judge_token
from fednode.identity.identity import Identity
from fednode.identity.lease import DAY_S, LEASE_DAYS, armour, disarm
from fednode.transports import tls
from fednode_bootstrap import serving
from fednode_bootstrap.introducer import Roster
from fednode_bootstrap.serving import serve
from tests.unit.identity.people import LISTED, MESH, NOW, made_key

GUARD_S = 180.0
ADDRESS = "127.0.0.1:7101"
A_ID, B_ID = LISTED["a"], LISTED["b"]


def some_id(number: int) -> str:
    return keys.node_id(made_key(number))


def book(folder: Path, now: float = NOW) -> Roster:
    return Roster(folder / "book", MESH, lambda: now)


def test_a_caller_without_a_token_is_told_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match=r"no token was given: ask for one .*FEDNODE_TOKEN"):
        book(tmp_path).enrol(A_ID, MESH, "a", ADDRESS, "")


def test_a_token_buys_one_lease_that_the_mesh_key_signed(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.tokens.new()
    proof = made.enrol(A_ID, MESH, "a", ADDRESS, token)
    found = leases.read(proof, keys.read_public(made.mesh_key))
    assert (found.name, found.id, found.expires) == ("a", A_ID, NOW + LEASE_DAYS * DAY_S)
    with pytest.raises(IdentityError, match="token is wrong, spent"):
        made.enrol(B_ID, MESH, "b", ADDRESS, token)
    assert token not in (tmp_path / "book" / "tokens.json").read_text()
    assert book(tmp_path).mesh_key == made.mesh_key


def test_a_lease_is_renewed_without_a_token_by_its_own_key_alone(tmp_path: Path) -> None:
    made = book(tmp_path)
    made.enrol(A_ID, MESH, "a", ADDRESS, made.tokens.new())
    assert made.enrol(A_ID, MESH, "a", "127.0.0.1:9", "")
    assert [one.address for one in made.enrolled()] == ["127.0.0.1:9"]
    with pytest.raises(IdentityError, match="no token was given"):
        made.enrol(B_ID, MESH, "a", ADDRESS, "")


@pytest.mark.parametrize("token", ["", "a-guess"])
def test_a_stranger_learns_nothing_of_the_mesh_its_names_and_its_keys(
    tmp_path: Path, token: str
) -> None:
    made = book(tmp_path)
    made.enrol(A_ID, MESH, "a", ADDRESS, made.tokens.new())
    said = set()
    for mesh, name in ((MESH, "a"), (MESH, "z"), ("other", "a"), ("other", "z")):
        for dry in (False, True):
            with pytest.raises(IdentityError) as refusal:
                made.enrol(B_ID, mesh, name, ADDRESS, token, dry=dry)
            said.add(str(refusal.value).replace(repr(name), "NAME"))
    assert len(said) == 1
    assert A_ID not in said.pop()


def test_no_token_takes_over_a_name_that_another_key_has(tmp_path: Path) -> None:
    made = book(tmp_path)
    made.enrol(A_ID, MESH, "a", ADDRESS, made.tokens.new("a"))
    for token in (made.tokens.new(), made.tokens.new("a")):
        with pytest.raises(IdentityError, match=r"'a' belongs to another key: .* free"):
            made.enrol(B_ID, MESH, "a", ADDRESS, token)
    assert [(one.name, one.id) for one in made.enrolled()] == [("a", A_ID)]
    assert made.enrol(A_ID, MESH, "a", ADDRESS, "")  # the real node renews


def test_the_operator_frees_the_name_of_a_lost_key(tmp_path: Path) -> None:
    made = book(tmp_path)
    made.enrol(A_ID, MESH, "a", ADDRESS, made.tokens.new("a"))
    second = made.tokens.new("a")
    token = made.free("a")
    with pytest.raises(IdentityError, match="the token for 'a' was replaced by a newer token: use"):
        made.enrol(B_ID, MESH, "a", ADDRESS, second)
    with pytest.raises(IdentityError, match="no token was given"):
        made.enrol(A_ID, MESH, "a", ADDRESS, "")
    assert made.enrol(B_ID, MESH, "a", ADDRESS, token)
    with pytest.raises(ConfigError, match="--name is 'b', and no key has that name"):
        made.free("b")


def test_one_key_collects_no_names(tmp_path: Path) -> None:
    made = book(tmp_path)
    token = made.tokens.new(uses=3)
    made.enrol(A_ID, MESH, "a", ADDRESS, token)
    with pytest.raises(IdentityError, match="this key has the name 'a': a key has one name"):
        made.enrol(A_ID, MESH, "b", ADDRESS, token)
    assert made.enrol(B_ID, MESH, "b", ADDRESS, token)  # no use was spent on it


def test_what_several_processes_revoke_at_once_is_all_kept(tmp_path: Path) -> None:
    """Each has a Book of its own; a file lock knows threads by their descriptors, too."""
    book(tmp_path)

    def revoke(who: int) -> None:
        mine = book(tmp_path)
        for at in range(5):
            mine.revoke(f"n{who}-{at}", A_ID)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(revoke, range(3)))
    names = sorted(leases.peek(one).name for one in book(tmp_path).revocations())
    assert names == [f"n{who}-{at}" for who in range(3) for at in range(5)]


def test_a_token_is_looked_up_and_spent_under_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that read one token before either of them spent it would both give a lease."""
    made, seen = book(tmp_path), []
    token, spend = made.tokens.new(), Tokens.spend

    def watched(self: Tokens, text: str, name: str, id: str, dry: bool) -> None:
        with (
            open(tmp_path / "book" / LOCK_FILE, "rb") as other,
            contextlib.suppress(BlockingIOError),
        ):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen.append("free")
        spend(self, text, name, id, dry)
        seen.append("spent")

    monkeypatch.setattr(Tokens, "spend", watched)
    made.enrol(A_ID, MESH, "a", ADDRESS, token)
    assert seen == ["spent"]


def test_tokens_may_be_for_one_name_or_for_several_nodes(tmp_path: Path) -> None:
    made = book(tmp_path)
    named, shared = made.tokens.new("a"), made.tokens.new(uses=2)
    with pytest.raises(IdentityError, match="another name than 'b'"):
        made.enrol(B_ID, MESH, "b", ADDRESS, named)
    made.enrol(A_ID, MESH, "a", ADDRESS, named)
    made.enrol(B_ID, MESH, "b", ADDRESS, shared)
    made.enrol(some_id(4), MESH, "c", ADDRESS, shared)
    with pytest.raises(IdentityError, match="spent"):
        made.enrol(some_id(5), MESH, "d", ADDRESS, shared)


@pytest.mark.parametrize(
    ("mesh", "name", "address", "text"),
    [
        ("other", "a", ADDRESS, "of mesh 'mesh', not 'other'"),
        (MESH, "A!", ADDRESS, "'A!' is not allowed"),
        (MESH, "a", "nowhere", "has no port"),
    ],
)
def test_what_is_wrong_costs_no_token(
    tmp_path: Path, mesh: str, name: str, address: str, text: str
) -> None:
    made = book(tmp_path)
    token = made.tokens.new()
    with pytest.raises(IdentityError, match=text):
        made.enrol(A_ID, mesh, name, address, token)
    assert made.enrol(A_ID, MESH, "a", ADDRESS, token)


def test_guesses_are_few_and_in_no_good_tokens_way(tmp_path: Path) -> None:
    now = [float(NOW)]
    made = Roster(tmp_path, MESH, lambda: now[0])
    first, second = made.tokens.new(), made.tokens.new()
    for _ in range(ASKED_MAX):
        with pytest.raises(IdentityError, match="wrong, spent"):
            made.enrol(A_ID, MESH, "a", ADDRESS, "guess", "192.0.2.1")
    with pytest.raises(IdentityError, match="in a minute"):
        made.enrol(A_ID, MESH, "a", ADDRESS, "guess", "192.0.2.1")
    # A good token is taken from anywhere, and a guess from elsewhere is looked at.
    assert made.enrol(A_ID, MESH, "a", ADDRESS, first, "192.0.2.1")
    with pytest.raises(IdentityError, match="wrong, spent"):
        made.enrol(B_ID, MESH, "b", ADDRESS, "guess", "192.0.2.2")
    assert made.enrol(B_ID, MESH, "b", ADDRESS, second, "192.0.2.2")
    now[0] += 61
    assert made.enrol(A_ID, MESH, "a", ADDRESS, "", "192.0.2.1")


def test_memory_for_sources_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SOURCES_MAX", 3)
    made = book(tmp_path)
    for number in range(9):
        with pytest.raises(IdentityError, match="wrong, spent"):
            made.enrol(A_ID, MESH, "a", ADDRESS, "guess", f"192.0.2.{number}")
    assert len(made._guesses._asked) == 3


def shown_by(key: Ed25519PrivateKey, folder: Path) -> ssl.SSLContext:
    """Return a context for a connection to an introducer, with a certificate of a key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    paths = folder / "certificate", folder / "key"
    pem = serialization.Encoding.PEM
    paths[0].write_bytes(mint(key, "n", b"", time.time()).public_bytes(pem))
    kind = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(pem, kind, serialization.NoEncryption()))
    context.load_cert_chain(*paths)
    return context


async def knock(at: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Prove some key to whoever listens, and say nothing more."""
    with tempfile.TemporaryDirectory() as folder:
        context = shown_by(Ed25519PrivateKey.generate(), Path(folder))
    host, port = at.rsplit(":", 1)
    return await asyncio.open_connection(host, int(port), ssl=context)


async def test_silent_visitors_are_in_nobodys_way(
    served: tuple[Roster, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "CONNECTIONS_MAX", 6)
    monkeypatch.setattr(tls, "VISITORS_MAX", 4)
    made, at = served
    silent = [await knock(at) for _ in range(7)]
    one = Identity(tmp_path / "n1", MESH, "n1")
    await enrol(one, introducer(made.mesh_key, at), ADDRESS, made.tokens.new())
    assert one.lease is not None
    async with asyncio.timeout(GUARD_S):
        while await silent[0][0].read(1000):  # it was there first, and made room
            pass
    for _, writer in silent:
        writer.close()


async def test_a_visit_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "VISIT_S", 0.05)
    made = Roster(tmp_path / "book", MESH)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(made, "127.0.0.1:0", stop, ready.set_result))
    async with asyncio.timeout(GUARD_S):
        reader, writer = await knock(await ready)
        while await reader.read(1000):
            pass
        assert reader.at_eof(), "the introducer ended the visit"
        writer.close()
        stop.set()
        await task


def test_a_revoked_key_gets_nothing_and_is_shown_to_nobody(tmp_path: Path) -> None:
    made = book(tmp_path)
    made.enrol(A_ID, MESH, "a", ADDRESS, made.tokens.new())
    line = made.revoke("a", A_ID)
    assert leases.read(disarm(line), keys.read_public(made.mesh_key)).kind == "revocation"
    with pytest.raises(IdentityError, match="was revoked"):
        made.enrol(A_ID, MESH, "a", ADDRESS, made.tokens.new())
    assert (made.sample("b"), [armour(one) for one in made.revocations()]) == ([], [line])


def test_a_sample_is_bounded_and_without_the_asker(tmp_path: Path) -> None:
    made = book(tmp_path)
    for number in range(3 * CONTACTS_MAX):
        made.enrol(some_id(number), MESH, f"n{number}", ADDRESS, made.tokens.new())
    for _ in range(20):
        names = [one.name for one in made.sample("n1")]
        assert len(set(names)) == CONTACTS_MAX
        assert "n1" not in names


def test_a_damaged_book_is_named(tmp_path: Path) -> None:
    made = book(tmp_path)
    (tmp_path / "book" / "tokens.json").write_text("{")
    with pytest.raises(StateError, match=r"tokens.json is damaged"):
        made.enrol(A_ID, MESH, "a", ADDRESS, "x")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Roster, str]]:
    made = Roster(tmp_path / "book", MESH)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(made, "127.0.0.1:0", stop, ready.set_result))
    async with asyncio.timeout(GUARD_S):
        address = await ready
    yield made, address
    stop.set()
    async with asyncio.timeout(GUARD_S):
        await task


async def test_it_ends_once_all_are_enrolled_and_nobody_calls(tmp_path: Path) -> None:
    made = Roster(tmp_path / "book", MESH)
    token = made.tokens.new(uses=2)
    never, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(made, "127.0.0.1:0", never, ready.set_result, 2, 0.05))
    async with asyncio.timeout(GUARD_S):
        at = await ready
        for name in ("n1", "n2"):
            assert not task.done()
            await enrol(
                Identity(tmp_path / name, MESH, name), introducer(made.mesh_key, at), ADDRESS, token
            )
        await task
        # Again, with all enrolled, it ends by itself as well.
        await serve(made, "127.0.0.1:0", never, lambda _: None, 2, 0.05)
    assert (made.settled(), never.is_set()) == (2, False)


def test_a_lease_that_is_nearly_over_is_not_settled(tmp_path: Path) -> None:
    now = [float(NOW)]
    made = Roster(tmp_path, MESH, lambda: now[0])
    made.enrol(A_ID, MESH, "a", ADDRESS, made.tokens.new())
    assert made.settled() == 1
    now[0] += 0.7 * LEASE_DAYS * DAY_S
    assert made.settled() == 0


async def test_its_operator_sees_each_enrolment_and_refusal_and_a_check_costs_no_token(
    tmp_path: Path,
) -> None:
    made, said = Roster(tmp_path / "book", MESH), list[str]()
    token = made.tokens.new("a")
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(made, "127.0.0.1:0", stop, ready.set_result, say=said.append))
    async with asyncio.timeout(GUARD_S):
        at = await ready
        a, b = (Identity(tmp_path / name, MESH, name) for name in "ab")
        await judge_token(a, introducer(made.mesh_key, at), ADDRESS, token)
        assert not made.enrolled()
        with pytest.raises(Refused, match="for another name than 'b'"):
            await judge_token(b, introducer(made.mesh_key, at), ADDRESS, token)
        await enrol(a, introducer(made.mesh_key, at), ADDRESS, token)
        await enrol(a, introducer(made.mesh_key, at), ADDRESS, "")
        with pytest.raises(Refused, match="no token was given"):
            await enrol(b, introducer(made.mesh_key, at), ADDRESS, "")
        stop.set()
        await task
    kinds = ["checked", "refused", "enrolled", "renewed", "refused"]
    assert [line.split()[0] for line in said] == kinds
    assert said[-1].endswith("[so far: 1 checked, 1 enrolled, 2 refused, 1 renewed]")
    assert not any(token in line for line in said)
