"""A node that runs follows its peers.yaml: members, addresses, ids and revocations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fednode.app import watching
from fednode.app.network import NodeNetwork, client_of, trust_of
from fednode.app.plan import make
from fednode.app.watching import Watching
from fednode.core.events import Record, Relisted
from fednode.core.types import Update
from fednode.errors import AddressError, ConfigError
from fednode.identity import keys
from fednode.identity.lease import armour
from fednode.identity.listed import Listed
from fednode.observe.client import Client
from fednode.observe.telemetry import Refusals
from fednode.settings.peers import PeerEntry, Peers, RelayEntry, load_peers
from fednode.transports import gates
from tests.contract.faults import pause
from tests.unit.app.canary import Node, keyed, running
from tests.unit.identity.people import MESH, MESH_KEY, STRANGER, A, B, lease, made_key, revocation

GUARD_S = 180.0
KEYS = {"a": A, "b": B, "c": STRANGER}
IDS = {name: keys.node_id(key) for name, key in KEYS.items()}
CLOSED = (
    *("tuning.kind=closed-form", "policy.name=promptfl", "rounds.mode=sync", "page.listen=null"),
    *("rounds.max=5000", "rounds.min_interval_s=0.02", "membership.preset=local"),
)


def entry(name: str, port: int = 0, id: str = "") -> PeerEntry:
    return PeerEntry(name, f"127.0.0.1:{port or 7100 + ord(name)}", id or IDS[name])


def listed(*entries: PeerEntry, **more: Any) -> Peers:
    return Peers(MESH, entries, **more)


@dataclass
class Stub:
    """What a watcher needs of a node that runs as a."""

    folder: Path
    held: Peers
    posted: list[Relisted] = field(default_factory=list)
    turned: list[tuple[str, float]] = field(default_factory=list)
    said: list[Record] = field(default_factory=list)
    fault: str = ""
    flags: tuple[str, ...] = ()
    moved: list[str] = field(default_factory=list)
    listens: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        text = "mesh: mesh\ninsecure: true\npeers: [{name: a, address: '127.0.0.1:7100'}]\n"
        file = self.folder / "peers.yaml"
        file.write_text(text)
        flags = ("tuning.kind=closed-form", *self.flags)
        made = make(file, None, "a", flags, self.folder / "a")
        names = frozenset(peer.name for peer in self.held.peers)
        self.trust: Any = Listed(names) if self.held.insecure else trust_of(self.held)
        refusals = Refusals()
        refusals.show = self.said.append
        assert made.own is not None
        plan = replace(made, peers=self.held, own=replace(made.own, peers=self.held))
        self.mesh = NodeNetwork(plan, None, self.trust, self, refusals)  # type: ignore[arg-type]
        self.watching = Watching(
            self.mesh,
            self,  # type: ignore[arg-type]
            lambda _: self.fault,
            lambda: self.moved.append(self.mesh.plan.address),
        )

    async def move(self, address: str) -> None:
        """Listen as a transport does."""
        if address.endswith(":1"):
            raise AddressError(f"cannot listen on {address}: Permission denied; choose another")
        self.listens.append(address)

    async def read(self, new: Peers) -> None:
        """Do what the watcher does with a new file."""
        await self.watching.move(new)
        self.watching.take(new)

    def post(self, event: Relisted) -> None:
        self.posted.append(event)

    def turn_away(self, id: str, seconds: float) -> None:
        self.turned.append((id, seconds))

    def revoke(self, proof: bytes) -> str:
        return str(self.trust.take_revocation(proof).id)

    def texts(self) -> list[str]:
        """Return what was said, without the file's place."""
        return [one.text.replace(str(self.folder / "peers.yaml"), "FILE") for one in self.said]


@pytest.fixture
def pair(tmp_path: Path) -> Stub:
    return Stub(tmp_path, listed(entry("a"), entry("b")))


def test_the_same_list_in_another_order_says_and_changes_nothing(pair: Stub) -> None:
    pair.watching.take(listed(entry("b"), entry("a")))
    assert (pair.posted, pair.said, pair.turned) == ([], [], [])


def test_a_new_member_is_believed_and_greeted(pair: Stub) -> None:
    assert pair.trust.name_of(IDS["c"]) == ""
    pair.watching.take(listed(entry("a"), entry("b"), entry("c")))
    assert pair.trust.name_of(IDS["c"]) == "c"
    assert pair.posted == [
        Relisted((Update("c", "alive", 0, entry("c").address, IDS["c"]),)),
    ]
    assert pair.texts() == ["FILE was read again: c is new"]


def test_a_member_that_is_gone_is_believed_no_more_and_may_come_back(pair: Stub) -> None:
    pair.watching.take(listed(entry("a")))
    assert pair.trust.name_of(IDS["b"]) == ""
    assert pair.posted == [Relisted((), ("b",))]
    assert pair.turned == [(IDS["b"], 0.0)]
    pair.watching.take(listed(entry("a"), entry("b")))
    assert pair.trust.name_of(IDS["b"]) == "b"
    assert [one.text.split(": ")[1] for one in pair.said] == ["b is gone", "b is new"]


def test_another_address_moves_a_peer_and_another_id_ends_the_old_keys_connections(
    pair: Stub,
) -> None:
    pair.watching.take(listed(entry("a"), entry("b", 7999)))
    new = keys.node_id(made_key(7))
    pair.watching.take(listed(entry("a"), entry("b", 7999, new)))
    moved, changed = (event.news[0] for event in pair.posted)
    assert (moved.address, moved.id) == ("127.0.0.1:7999", IDS["b"])
    assert (changed.address, changed.id) == ("", new)
    assert pair.turned == [(IDS["b"], 0.0)]
    assert (pair.trust.name_of(new), pair.trust.name_of(IDS["b"])) == ("b", "")


def test_who_has_a_lease_stays_without_an_entry(tmp_path: Path) -> None:
    key = keys.written(MESH_KEY.public_key())
    node = Stub(tmp_path, listed(entry("a"), PeerEntry("b", "127.0.0.1:7102"), mesh_key=key))
    node.trust.clock = lambda: 1_800_000_000.0
    assert node.trust._take(lease("b", B), IDS["b"]) == ""
    node.watching.take(listed(entry("a"), mesh_key=key))
    assert (node.posted, node.turned) == ([], [])
    assert node.trust.name_of(IDS["b"]) == "b"


def test_a_new_revocation_holds_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    key = keys.written(MESH_KEY.public_key())
    node = Stub(tmp_path, listed(entry("a"), entry("b"), mesh_key=key))
    with pytest.raises(ConfigError, match=r"A line of `revoked` in peers\.yaml is wrong"):
        node.watching.take(listed(entry("a"), mesh_key=key, revoked=("nonsense",)))
    assert node.trust.name_of(IDS["b"]) == "b"
    line = armour(revocation("b", B, issued=1_700_000_000))
    node.watching.take(listed(entry("a"), entry("b"), mesh_key=key, revoked=(line,)))
    assert node.trust.is_revoked(IDS["b"])


def test_without_keys_a_name_that_is_gone_is_refused(tmp_path: Path) -> None:
    def plain(*names: str) -> Peers:
        entries = tuple(PeerEntry(name, f"127.0.0.1:{7100 + ord(name)}") for name in names)
        return Peers(MESH, entries, insecure=True)

    node = Stub(tmp_path, plain("a", "b"))
    node.watching.take(plain("a", "c"))
    assert node.posted[0].gone == ("b",)
    assert (node.trust.refusal("", "b"), node.trust.refusal("", "c")) == (
        "'b' is in peers.yaml no more",
        "",
    )
    node.watching.take(plain("a", "b", "c"))
    assert node.trust.refusal("", "b") == ""


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (replace(listed(entry("a"), entry("c")), mesh="other"), "changed mesh, which makes"),
        (Peers(MESH, (PeerEntry("a", "127.0.0.1:1"),), insecure=True), "changed insecure, which"),
        (listed(entry("b"), entry("c")), "does not list this node, 'a', any more"),
    ],
)
def test_another_mesh_or_one_without_this_node_is_not_taken(
    pair: Stub, new: Peers, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        pair.watching.take(new)
    assert (pair.trust.name_of(IDS["b"]), pair.posted) == ("b", [])


def test_a_list_that_the_node_cannot_run_with_is_not_taken(pair: Stub) -> None:
    pair.fault = "too many nodes"
    with pytest.raises(ConfigError, match="too many nodes"):
        pair.watching.take(listed(entry("a"), entry("b"), entry("c")))
    assert pair.posted == []


def test_what_holds_from_the_next_start_is_said(pair: Stub) -> None:
    key = keys.written(MESH_KEY.public_key())
    with pytest.raises(ConfigError, match="changed mesh_key, which makes another mesh"):
        pair.watching.take(listed(entry("a"), entry("b"), mesh_key=key))
    pair.watching.take(listed(entry("a", 0, IDS["c"]), entry("b")))
    assert pair.texts() == ["FILE changed this node's id: restart the node"]
    assert pair.posted == []


def test_another_share_of_the_images_is_said_and_begins_at_the_next_start(tmp_path: Path) -> None:
    by_place, three = "data.partition.how=dirichlet", listed(entry("b"), entry("a"), entry("c"))
    shares = Stub(tmp_path, listed(entry("a"), entry("b")), flags=(by_place,))
    shares.watching.take(three)
    shares.watching.take(replace(three, peers=three.peers[::-1]))
    assert [text for text in shares.texts() if "changed" in text] == [
        "FILE changed this node's share of the images (data.partition): restart the node",
    ]
    assert shares.mesh.plan.settings.data.partition.count == 1, "as at its start"
    fixed = ("data.partition.index=0", "data.partition.count=2")
    stays = Stub(tmp_path, listed(entry("a"), entry("b")), flags=(by_place, *fixed))
    stays.watching.take(three)
    assert [text for text in stays.texts() if "changed" in text] == []


async def test_another_address_of_its_own_is_listened_at_and_told(pair: Stub) -> None:
    await pair.read(listed(entry("a", 7999), entry("b")))
    assert pair.listens == pair.moved == ["127.0.0.1:7999"]
    assert pair.posted == [Relisted((), own="127.0.0.1:7999")]
    assert pair.texts() == ["FILE was read again: this node is reached at 127.0.0.1:7999"]
    assert pair.mesh.plan.address == "127.0.0.1:7999"
    await pair.read(listed(entry("a", 7999), entry("b"), entry("c")))
    assert len(pair.moved) == 1
    assert [one.name for one in pair.mesh.plan.others] == ["b", "c"]


async def test_an_address_at_which_it_cannot_listen_changes_nothing(pair: Stub) -> None:
    text = "FILE gives this node another address: cannot listen on 127.0.0.1:1: Permission denied"
    with pytest.raises(ConfigError) as caught:
        await pair.read(listed(entry("a", 1), entry("b"), entry("c")))
    assert str(caught.value).replace(str(pair.folder / "peers.yaml"), "FILE").startswith(text)
    assert (pair.posted, pair.moved) == ([], [])
    assert pair.trust.name_of(IDS["c"]) == ""


@pytest.mark.parametrize(
    ("settings", "posted", "listens", "texts"),
    [
        (
            {"advertise": "10.0.0.5:7100"}, [], [],
            ["FILE changed this node's address (which its advertise overrules): restart the node"],
        ),
        (
            {"listen": "0.0.0.0:7100"}, [Relisted((), own="127.0.0.1:7999")], [],
            ["FILE was read again: this node is reached at 127.0.0.1:7999"],
        ),
    ],
)  # fmt: skip
async def test_what_node_yaml_says_of_the_address_holds(
    pair: Stub,
    settings: dict[str, str],
    posted: list[Relisted],
    listens: list[str],
    texts: list[str],
) -> None:
    pair.mesh.go_by(
        lambda plan: replace(plan, settings=replace(plan.settings, **settings))  # type: ignore[arg-type]
    )
    await pair.read(listed(entry("a", 7999), entry("b")))
    assert (pair.posted, pair.listens, pair.texts()) == (posted, listens, texts)


async def test_a_node_moves_to_a_relay_if_there_is_one(pair: Stub) -> None:
    relayed = replace(entry("a"), address="relay")
    with pytest.raises(ConfigError, match=r"peers\.yaml lists none: add `relays`"):
        await pair.read(listed(relayed, entry("b")))
    relays = (RelayEntry("127.0.0.1:9", IDS["c"]),)
    pair.mesh.go_by(lambda plan: replace(plan, peers=replace(plan.peers, relays=relays)))
    await pair.read(listed(relayed, entry("b")))
    assert (pair.listens, pair.posted) == (["relay"], [Relisted((), own="relay")])
    assert pair.mesh.plan.peers.relays == relays, "they are of a settings document, and hold"


async def test_a_wrong_file_is_said_once_and_the_old_list_stays(
    pair: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.001)
    (pair.folder / "peers.yaml").write_text("mesh: mesh\npeers: []\n")
    watch = asyncio.create_task(pair.watching.watch())
    async with asyncio.timeout(GUARD_S):
        while not pair.said:
            await pause(0.001)
        for _ in range(20):
            await pause(0.001)
    watch.cancel()
    (text,) = pair.texts()
    assert text.startswith("FILE, line 2: peers is empty; list at least this node")
    assert text.endswith("Until then the node goes on with the peers that it has.")
    assert pair.trust.name_of(IDS["b"]) == "b"


@asynccontextmanager
async def watched(folder: Path, name: str) -> AsyncIterator[tuple[Node, Client]]:
    """Run a whole node that watches its peers.yaml, and a client with its key."""
    async with running(folder, name, *CLOSED) as node:
        watch = Watching(node.mesh, node.driver, moved=node.faces.moved).watch()
        task = asyncio.create_task(watch)
        async with client_of(load_peers(folder / "peers.yaml"), folder / name) as client:
            try:
                yield node, client
            finally:
                task.cancel()


async def until(node: Node, client: Client, holds: Callable[[Any], bool]) -> Any:
    while not holds(reply := await client.status(node.mesh.plan.address)):
        await pause(0.05)
    return reply


@pytest.mark.e2e
async def test_a_listed_mesh_takes_a_third_node_and_lets_it_go_while_its_rounds_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.05)
    keyed(tmp_path, "a", "b", "c")
    file = tmp_path / "peers.yaml"
    three = file.read_text()
    two = "".join(line for line in three.splitlines(True) if "name: c" not in line)
    file.write_text(two)

    def merges(more: int) -> Callable[[Any], bool]:
        return lambda reply: reply.rounds_merged >= more

    async with (
        asyncio.timeout(GUARD_S),
        watched(tmp_path, "a") as (a, ask_a),
        watched(tmp_path, "b") as (b, ask_b),
    ):
        await until(a, ask_a, merges(3))
        await asyncio.to_thread(file.write_text, three)
        async with watched(tmp_path, "c") as (c, ask_c):
            for node, client in ((a, ask_a), (b, ask_b), (c, ask_c)):
                await until(node, client, merges(3))
            await asyncio.to_thread(file.write_text, two)
            # c keeps running, and is refused.
            reply = await until(
                a, ask_a, lambda reply: reply.peers[1].state == "left" and reply.refused
            )
            before = reply.rounds_merged
            await until(a, ask_a, lambda reply: reply.rounds_merged >= before + 3)


@pytest.mark.e2e
async def test_a_node_moves_to_another_address_while_its_rounds_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.05)
    monkeypatch.setattr(gates, "MOVE_GRACE_S", 0.1)
    keyed(tmp_path, "a", "b")
    text = (tmp_path / "peers.yaml").read_text()
    own = tmp_path / "own"
    own.mkdir()
    (own / "peers.yaml").write_text(text)
    (own / "a").symlink_to(tmp_path / "a")

    def merges(more: int = 3) -> Callable[[Any], bool]:
        return lambda reply: reply.rounds_merged >= more

    async with (
        asyncio.timeout(GUARD_S),
        watched(own, "a") as (a, ask_a),  # its own peers.yaml; b's names the old address for ever
        watched(tmp_path, "b") as (b, ask_b),
    ):
        await until(a, ask_a, merges())
        old = a.mesh.plan.address
        new = f"127.0.0.7:{old.partition(':')[2]}"
        await asyncio.to_thread((own / "peers.yaml").write_text, text.replace(old, new, 1))
        reply = await until(b, ask_b, lambda reply: reply.peers[0].address == new)
        await until(b, ask_b, merges(reply.rounds_merged + 3))
        assert a.mesh.plan.address == new
        assert (await ask_a.status(new)).address == new
        while True:  # the old address is left
            try:
                _, writer = await asyncio.open_connection(*old.split(":"))
            except ConnectionRefusedError:
                break
            writer.close()
            await pause(0.05)
        reply = await until(b, ask_b, lambda reply: reply.peers[0].state == "alive")
        await until(b, ask_b, merges(reply.rounds_merged + 3))
