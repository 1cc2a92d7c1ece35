"""Real `fednode` processes: what a user sees when things go well, and when they do not.

Nothing here is about images, except where the command is: the learner is the closed-form one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
import torch
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from fednode.app.client import client_of
from fednode.errors import FAULT_CODES, FednodeError, Unreachable
from fednode.observe.client import Client
from fednode.settings.peers import load_peers
from fednode.storage.store import read_snapshot
from fednode.transports.ports import free_ports
from fednode_bootstrap.daemon import Daemon
from tests.contract.faults import pause
from tests.daemons import GUARD_S, running, start
from tests.unit.commands.run import Fednode
from tests.unit.identity.people import SmallMesh

pytestmark = pytest.mark.e2e
CLOSED = ("--set", "tuning.kind=closed-form", "--set", "membership.preset=local")
POLL_S = 0.02


class Pair:
    """Nodes a and b with their peers.yaml in a folder of their own, where commands are typed."""

    def __init__(self, folder: Path, fednode: Fednode) -> None:
        self.folder, self.fednode = folder, fednode
        self.peers = folder / "peers.yaml"
        self.address = dict(zip("ab", (f"127.0.0.1:{port}" for port in free_ports(2)), strict=True))
        listed = [{"name": name, "address": where} for name, where in self.address.items()]
        self.peers.write_text(yaml.safe_dump({"mesh": "m", "insecure": True, "peers": listed}))

    def certify(self) -> Path:
        """Give both nodes certificates of one mesh; return the state directory of a."""
        mesh = SmallMesh("m")
        tree = yaml.safe_load(self.peers.read_text()) | {"mesh_key": mesh.mesh_key_text}
        self.peers.write_text(yaml.safe_dump(tree | {"insecure": False}))
        for name in "ab":
            mesh.write(self.folder / name, name)
        return self.folder / "a"

    def words(self, name: str, *more: str, state: Path | None = None) -> list[str]:
        """Return the words after `fednode` that start a node."""
        folder = state or self.folder / name
        named = ["--peers", str(self.peers), "--name", name, "--state", str(folder)]
        return ["start", *named, *CLOSED, *more]

    def running(
        self, name: str, *more: str, state: Path | None = None, program: bool = False
    ) -> AbstractAsyncContextManager[Daemon]:
        """Run a node until the block ends."""
        return running(self.folder, name, *self.words(name, *more, state=state), program=program)

    async def until(self, client: Client, name: str, holds: Callable[[Any], bool]) -> Any:
        """Return the first status of a node of which something holds."""
        async with asyncio.timeout(GUARD_S):
            while True:
                with contextlib.suppress(FednodeError):
                    reply = await client.status(self.address[name])
                    if holds(reply):
                        return reply
                await pause(POLL_S)

    async def types(self, *words: str) -> str:
        """Type a command, in this process; return what it prints."""
        code = await asyncio.to_thread(self.fednode, *words)
        assert code == 0, self.fednode.err
        return self.fednode.out

    def sentence(self, *words: str) -> str:
        """Type a command that ends with a fault and no traceback; return what it says last."""
        code = self.fednode(*words)
        assert code in {*FAULT_CODES, Unreachable.exit_code}
        assert "Traceback" not in self.fednode.err
        last = self.fednode.err.strip().splitlines()[-1]
        assert last.startswith("fednode: ")
        return last.removeprefix("fednode: ")


@pytest.fixture
def pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Pair:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Pair(tmp_path, Fednode(capsys))


async def test_two_daemons_exchange_and_one_resumes_after_kill_9(pair: Pair) -> None:
    paced = ("--set", "rounds.max=0", "--set", "rounds.min_interval_s=0.1")
    async with Client() as client, pair.running("a", *paced) as a, pair.running("b", *paced) as b:

        def exchanged(reply: Any) -> bool:
            return reply.round >= 3 and int(reply.peers[0].shown.get("chosen", "0")) > 0

        await pair.until(client, "a", exchanged)
        await asyncio.to_thread(pair.fednode, "status", pair.address["a"], "--format", "json")
        shown = json.loads(pair.fednode.out)
        assert (shown["name"], shown["policy"], shown["peers"][0]["state"]) == (
            *("a", "zerodfl", "alive"),
        )
        before = await client.status(pair.address["b"])
        b.signal(signal.SIGKILL)
        await b.ended()
        lonely = await pair.until(client, "a", lambda reply: reply.alone)
        assert lonely.peers[0].state == "dead"
        await pair.until(client, "a", lambda reply: reply.round > lonely.round)
        await start(b)
        again = await pair.until(client, "b", lambda reply: reply.life not in {"loading", ""})
        assert again.round >= before.round - 1
        await pair.until(client, "b", lambda reply: reply.round > before.round)
        await pair.until(client, "a", lambda reply: not reply.alone)
        for name in "ab":
            reached = (await client.status(pair.address[name])).round
            rounds = [one.round for one in await client.history(pair.address[name])]
            assert rounds[-1] >= reached
            assert rounds == list(range(rounds[0], rounds[-1] + 1)), "none is missing or twice"
            assert name == "a" or rounds[0] <= before.round < reached
        a.signal(signal.SIGTERM)
        assert await a.ended() == 0


async def test_two_daemons_with_certificates_exchange_and_know_each_other_again(pair: Pair) -> None:
    """Each node's key is in the file of the other, so that they greet after a restart."""
    state, paced = pair.certify(), ("--set", "rounds.max=0", "--set", "rounds.min_interval_s=0.1")
    for _ in range(2):
        async with (
            client_of(load_peers(pair.peers), state) as client,
            pair.running("a", *paced, program=True),
            pair.running("b", *paced),
        ):
            start = (await pair.until(client, "a", lambda reply: reply.life == "running")).round

            def exchanged(reply: Any, least: int = start + 3) -> bool:
                merged = int(reply.peers[0].shown.get("chosen", "0"))
                return bool(reply.round >= least and merged > 0)

            reply = await pair.until(client, "a", exchanged)
            assert (reply.peers[0].state, reply.peers[0].path) == ("alive", "direct")
            async with asyncio.timeout(GUARD_S):
                for name in "ab":
                    told = b""
                    while not told:
                        with contextlib.suppress(FednodeError):
                            told = (await client.peers(pair.address[name]))[0].certificates
                        await pause(POLL_S)
            with pytest.raises(FednodeError):
                async with Client() as stranger:
                    await stranger.status(pair.address["a"])
        # gRPC says nothing of the stranger's handshake: strangers could fill the log.
        assert "Handshake failed" not in (pair.folder / "a.log").read_text()
    for name, other in ("ab", "ba"):
        assert (pair.folder / name / "identity" / "peers").read_text().startswith(f"{other} ")


async def test_a_finished_run_gets_more_rounds_on_the_same_state(pair: Pair) -> None:
    """Also where the rounds are the whole mesh's, and the nodes agree on their number.

    Another seed begins a new run, and the run before is kept.
    """
    averaging = ("--set", "policy.name=promptfl", "--set", "rounds.mode=sync")
    for most, seed in ((3, 1), (5, 1), (2, 2)):
        words = (*averaging, "--set", f"rounds.max={most}", "--set", f"seed={seed}")
        async with Client() as client, pair.running("a", *words), pair.running("b", *words):
            for name in "ab":
                reply = await pair.until(client, name, lambda one: one.life == "finished")
                assert (reply.round, reply.rounds_max) == (most, most)
    for name in "ab":
        assert read_snapshot(pair.folder / name / "runs" / "1").policy.round == 5


def test_start_reads_the_peers_of_its_folder(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a peers.yaml it says what to do."""
    said = pair.sentence("start", "--name", "z")
    assert "peers.yaml" in said
    assert "'z'" in said
    (pair.folder / "empty").mkdir()
    monkeypatch.chdir("empty")
    assert pair.sentence("start").startswith("There is no peers.yaml here: ")


async def test_a_peer_with_another_configuration_is_named_at_both_ends(pair: Pair) -> None:
    other = ("--set", "policy.recipients=3")
    async with Client() as client, pair.running("a"), pair.running("b", *other):
        for name in "ab":
            # Whoever asks first is told by the other, in the other's words.
            reply = await pair.until(
                client, name, lambda one: "refused" in {peer.state for peer in one.peers}
            )
            assert reply.peers[0].reason in {
                "policy.recipients is 5 at 'a' and 3 at 'b'",
            }
            assert any("policy.recipients" in text for text in (*reply.notes, *reply.warnings))


async def test_what_tools_and_people_see_of_a_daemon(pair: Pair) -> None:
    paced = ("--set", "rounds.min_interval_s=0.05", "--set", "rounds.start.timeout_s=0.1")
    endless = ("--set", "rounds.max=0", *paced)
    async with Client() as client, pair.running("a", *endless) as daemon:
        reply = await pair.until(client, "a", lambda reply: reply.round >= 2)
        async with aiohttp.ClientSession() as session:
            async with session.get(reply.page + "metrics") as answer:
                text = await answer.text()
            async with session.get(reply.page + "status") as answer:
                assert (await answer.json())["status"]["name"] == "a"
        found = {one.name for one in text_string_to_metric_families(text)}
        assert {"fednode_round", "fednode_peers", "process_open_fds"} <= found
        async with grpc.aio.insecure_channel(pair.address["a"]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in ("", "fednode.v1.Node"):
                request = health_pb2.HealthCheckRequest(service=name)
                assert (await stub.Check(request, timeout=180)).status == 1
        logs = await pair.types("logs", pair.address["a"], "--format", "json")
        events = [json.loads(line)["event"] for line in logs.splitlines()]
        assert "round.adopted" in events
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
    lines = (pair.folder / "a/fednode.log").read_text().splitlines()
    assert {json.loads(line)["node"] for line in lines} == {"a"}


async def test_a_state_directory_in_use(pair: Pair) -> None:
    async with Client() as client, pair.running("a"):
        await pair.until(client, "a", lambda reply: True)
        said = await asyncio.to_thread(pair.sentence, *pair.words("b", state=pair.folder / "a"))
    assert "in use" in said
    assert str(pair.folder / "a") in said


def tmpfs(folder: Path) -> bool:
    """Mount a file system of 8 MB; tell whether that is allowed here."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave no room on a disk."""
    with (disk / "full").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


async def test_a_full_disk_is_named_and_the_node_goes_on_when_there_is_room(pair: Pair) -> None:
    disk = pair.folder / "disk"
    if not tmpfs(disk):
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        paced = ("--set", "rounds.max=0", "--set", "rounds.min_interval_s=0.05")
        async with Client() as client, pair.running("a", *paced, "--set",
            "rounds.start.timeout_s=0.1", state=disk / "a") as daemon:  # fmt: skip
            await pair.until(client, "a", lambda reply: reply.round >= 2)
            fill(disk)
            stuck = await pair.until(
                client,
                "a",
                lambda reply: any("disk is full" in event.text for event in reply.events),
            )
            assert "cannot take round" in stuck.events[-1].text
            (disk / "full").unlink()
            await pair.until(client, "a", lambda reply: reply.round >= stuck.round + 2)
            daemon.signal(signal.SIGTERM)
            assert await daemon.ended() == 0
        fill(disk)
        said = await asyncio.to_thread(pair.sentence, *pair.words("b", state=disk / "b"))
        assert "the disk is full" in said
        assert str(disk) in said
    finally:
        unmount(disk)


async def test_a_read_only_disk_is_named_and_loses_nothing(pair: Pair) -> None:
    disk = pair.folder / "disk"
    if not tmpfs(disk):
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        paced = ("--set", "rounds.max=0", "--set", "rounds.start.timeout_s=0.1")
        async with Client() as client, pair.running("a", *paced, state=disk / "a") as daemon:
            await pair.until(client, "a", lambda reply: reply.round >= 2)
            daemon.signal(signal.SIGTERM)
            assert await daemon.ended() == 0
        kept = read_snapshot(disk / "a")
        remount(disk, "ro")
        for name in ("a", "b"):  # a state that is there, and one that is to be made
            said = await asyncio.to_thread(pair.sentence, *pair.words(name, state=disk / name))
            assert "read-only" in said
            assert str(disk) in said
        remount(disk, "rw")
        async with Client() as client, pair.running("a", *paced, state=disk / "a"):
            await pair.until(client, "a", lambda reply: reply.round > kept.policy.round)
    finally:
        unmount(disk)


def test_one_sentence_for_what_is_wrong_at_the_start(pair: Pair) -> None:
    folder = pair.folder
    config = folder / "wrong.yaml"
    config.write_text("tuning: {kind: closed-form}\nroundz: {max: 3}\n")
    said = pair.sentence(*pair.words("a", "--config", str(config)))
    assert said == f"{config}, line 2: unknown key 'roundz'; did you mean 'rounds'?"

    said = pair.sentence("start", "--peers", "nowhere.yaml", "--name", "a")
    assert said == "There is no file nowhere.yaml; `fednode init` writes one."

    twice = folder / "twice.yaml"
    twice.write_text(pair.peers.read_text().replace("name: b", "name: a"))
    said = pair.sentence("start", "--peers", str(twice), "--name", "a")
    assert "the name 'a' stands in two entries" in said

    said = pair.sentence(*pair.words("a", "--set", "page.listen=0.0.0.0:0"))
    assert "page.token is not set" in said

    host, port = pair.address["a"].split(":")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, int(port)))
        taken.listen()
        said = pair.sentence(*pair.words("a"))
    assert said.startswith(f"cannot listen on {host}:{port}: the port {port} is in use")


def test_one_sentence_for_what_the_loading_of_images_and_model_finds(pair: Pair) -> None:
    (pair.folder / "empty").mkdir()
    other = pair.folder / "other.pt"
    torch.save({"visual.proj": torch.zeros(3, 4)}, other)
    torch_ = ("--set", "tuning.kind=torch", "--set", "tuning.threads=1", "--set")
    said = pair.sentence(*pair.words("a", *torch_, "data.path=empty"))
    assert "empty" in said
    model = ("model.name=ViT-B-32", "--set", f"model.pretrained={other}")
    said = pair.sentence(*pair.words("a", *torch_, *model))
    assert str(other) in said
    assert "ViT-B-32" in said


def test_one_sentence_where_nothing_is(pair: Pair) -> None:
    said = pair.sentence("status", pair.address["a"])
    assert said.startswith(f"Nobody answers at {pair.address['a']}")
    said = pair.sentence("predict", "nothing.jpg")
    assert said.startswith("No node has run here")
    said = pair.sentence("eval")
    assert said.startswith("No node has run here")
