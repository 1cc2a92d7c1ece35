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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from fednode.errors import FAULT_CODES, FednodeError, Unreachable
from fednode.observe.client import Client
from tests.contract.faults import pause
from tests.daemons import CLOSED, ENDLESS, GUARD_S, POLL_S, Nodes, finished, start, states
from tests.unit.commands.run import Fednode
from tests.unit.storage.stored import read_snapshot

pytestmark = pytest.mark.e2e
QUICK = ("--set", "rounds.min_interval_s=0.05", "--set", "rounds.start.timeout_s=0.1")


@pytest.fixture
def pair(here: Path) -> Nodes:
    """Return nodes a and b without TLS, and their peers.yaml where commands are typed."""
    return Nodes(here, "ab", CLOSED, tls=False)


def sentence(fednode: Fednode, *words: str) -> str:
    """Type a command that ends with a fault and no traceback; return what it says last."""
    assert fednode(*words) in {*FAULT_CODES, Unreachable.exit_code}
    assert "Traceback" not in fednode.err
    last = fednode.err.strip().splitlines()[-1]
    assert last.startswith("fednode: ")
    return last.removeprefix("fednode: ")


def merged(reply: Any) -> bool:
    """Tell whether a node is past its third round and merged what its peer sent."""
    return bool(reply.round >= 3 and reply.rounds_merged)


async def test_two_daemons_exchange_and_one_resumes_after_kill_9(
    pair: Nodes, fednode: Fednode
) -> None:
    async with pair.running("a", *ENDLESS) as a, pair.running("b", *ENDLESS) as b:
        await pair.until("a", merged)
        asked = ("status", pair.address["a"], "--format", "json")
        shown = json.loads(await fednode.types(*asked))
        assert (shown["name"], shown["policy"], shown["peers"][0]["state"]) == (
            *("a", "zerodfl", "alive"),
        )
        before = await pair.until("b", bool)
        b.signal(signal.SIGKILL)
        await b.ended()
        lonely = await pair.until("a", lambda reply: reply.alone)
        assert states(lonely) == {"b": "dead"}
        await pair.until("a", lambda reply: reply.round > lonely.round)
        await start(b)
        again = await pair.until("b", lambda reply: reply.life not in {"loading", ""})
        assert again.round >= before.round - 1
        await pair.until("b", lambda reply: reply.round > before.round)
        await pair.until("a", lambda reply: not reply.alone)
        for name in "ab":
            reached = (await pair.until(name, bool)).round
            async with Client() as client:
                rounds = [one.round for one in await client.history(pair.address[name])]
            assert rounds[-1] >= reached
            assert rounds == list(range(rounds[0], rounds[-1] + 1)), "none is missing or twice"
            assert name == "a" or rounds[0] <= before.round < reached
        a.signal(signal.SIGTERM)
        assert await a.ended() == 0


async def test_two_daemons_with_certificates_exchange_and_know_each_other_again(
    here: Path,
) -> None:
    """Each node's key is in the file of the other, so that they greet after a restart."""
    nodes = Nodes(here, "ab", (*CLOSED, *ENDLESS))
    for _ in range(2):
        async with nodes.running("a", program=True), nodes.running("b"), nodes.client() as client:
            begun = (await nodes.until("a", lambda reply: reply.life == "running")).round
            await nodes.until("a", lambda reply: reply.round >= begun + 3)  # noqa: B023
            reply = await nodes.until("a", merged)
            assert (reply.peers[0].state, reply.peers[0].path) == ("alive", "direct")
            async with asyncio.timeout(GUARD_S):
                for name in "ab":
                    told = b""
                    while not told:
                        with contextlib.suppress(FednodeError):
                            told = (await client.peers(nodes.address[name]))[0].certificates
                        await pause(POLL_S)
            with pytest.raises(FednodeError):
                async with Client() as stranger:
                    await stranger.status(nodes.address["a"])
        # gRPC says nothing of the stranger's handshake: strangers could fill the log.
        assert "Handshake failed" not in (here / "a.log").read_text()
    for name, other in ("ab", "ba"):
        assert (here / name / "identity" / "peers").read_text().startswith(f"{other} ")


async def test_a_finished_run_gets_more_rounds_on_the_same_state(pair: Nodes) -> None:
    """Also where the rounds are the whole mesh's, and the nodes agree on their number.

    Another seed begins a new run, and the run before is kept.
    """
    averaging = ("--set", "policy.name=promptfl", "--set", "rounds.mode=sync")
    for most, seed in ((3, 1), (5, 1), (2, 2)):
        words = (*averaging, "--set", f"rounds.max={most}", "--set", f"seed={seed}")
        async with pair.all_running(*words):
            for name in "ab":
                reply = await pair.until(name, finished)
                assert (reply.round, reply.rounds_max) == (most, most)
    for name in "ab":
        assert read_snapshot(pair.folder / name / "runs" / "1").policy.round == 5


async def test_a_peer_with_another_configuration_is_named_at_both_ends(pair: Nodes) -> None:
    async with pair.running("a"), pair.running("b", "--set", "policy.recipients=3"):
        for name in "ab":
            # Whoever asks first is told by the other, in the other's words.
            reply = await pair.until(name, lambda reply: "refused" in states(reply).values())
            assert reply.peers[0].reason == "policy.recipients is 5 at 'a' and 3 at 'b'"
            assert any("policy.recipients" in text for text in (*reply.notes, *reply.warnings))


async def test_what_tools_and_people_see_of_a_daemon(pair: Nodes, fednode: Fednode) -> None:
    async with pair.running("a", "--set", "rounds.max=0", *QUICK) as daemon:
        reply = await pair.until("a", lambda reply: reply.round >= 2)
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
        logs = await fednode.types("logs", pair.address["a"], "--format", "json")
        events = [json.loads(line)["event"] for line in logs.splitlines()]
        assert "round.adopted" in events
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
    lines = (pair.folder / "a/fednode.log").read_text().splitlines()
    assert {json.loads(line)["node"] for line in lines} == {"a"}


async def test_a_state_directory_in_use(pair: Nodes, fednode: Fednode) -> None:
    state = pair.folder / "a"
    async with pair.running("a"):
        await pair.until("a", bool)
        said = await asyncio.to_thread(sentence, fednode, *pair.words("b", state=state))
    assert "in use" in said
    assert str(state) in said


@pytest.fixture
def disk(here: Path) -> Iterator[Path]:
    """Mount a file system of 8 MB, if that is allowed here."""
    folder = here / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave no room on a disk."""
    with (disk / "full").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


async def test_a_full_disk_is_named_and_the_node_goes_on_when_there_is_room(
    pair: Nodes, disk: Path, fednode: Fednode
) -> None:
    async with pair.running("a", "--set", "rounds.max=0", *QUICK, state=disk / "a") as daemon:
        await pair.until("a", lambda reply: reply.round >= 2)
        fill(disk)
        stuck = await pair.until(
            "a", lambda reply: any("disk is full" in event.text for event in reply.events)
        )
        assert "cannot take round" in stuck.events[-1].text
        (disk / "full").unlink()
        await pair.until("a", lambda reply: reply.round >= stuck.round + 2)
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
    fill(disk)
    said = await asyncio.to_thread(sentence, fednode, *pair.words("b", state=disk / "b"))
    assert "the disk is full" in said
    assert str(disk) in said


async def test_a_read_only_disk_is_named_and_loses_nothing(
    pair: Nodes, disk: Path, fednode: Fednode
) -> None:
    endless = ("--set", "rounds.max=0", *QUICK)
    async with pair.running("a", *endless, state=disk / "a") as daemon:
        await pair.until("a", lambda reply: reply.round >= 2)
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
    kept = read_snapshot(disk / "a")
    remount(disk, "ro")
    for name in ("a", "b"):  # a state that is there, and one that is to be made
        said = await asyncio.to_thread(sentence, fednode, *pair.words(name, state=disk / name))
        assert "read-only" in said
        assert str(disk) in said
    remount(disk, "rw")
    async with pair.running("a", *endless, state=disk / "a"):
        await pair.until("a", lambda reply: reply.round > kept.policy.round)


def test_one_sentence_for_what_is_wrong_at_the_start(pair: Nodes, fednode: Fednode) -> None:
    folder = pair.folder
    config = folder / "wrong.yaml"
    config.write_text("tuning: {kind: closed-form}\nroundz: {max: 3}\n")
    said = sentence(fednode, *pair.words("a", "--config", str(config)))
    assert said == f"{config}, line 2: unknown key 'roundz'; did you mean 'rounds'?"

    said = sentence(fednode, "start", "--peers", "nowhere.yaml", "--name", "a")
    assert said == "There is no file nowhere.yaml; `fednode init` writes one."

    twice = folder / "twice.yaml"
    twice.write_text(pair.peers.read_text().replace("name: b", "name: a"))
    said = sentence(fednode, "start", "--peers", str(twice), "--name", "a")
    assert "the name 'a' stands in two entries" in said

    said = sentence(fednode, *pair.words("a", "--set", "page.listen=0.0.0.0:0"))
    assert "page.token is not set" in said

    host, port = pair.address["a"].split(":")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, int(port)))
        taken.listen()
        said = sentence(fednode, *pair.words("a"))
    assert said.startswith(f"cannot listen on {host}:{port}: the port {port} is in use")


def test_one_sentence_for_what_the_loading_of_images_and_model_finds(
    pair: Nodes, fednode: Fednode
) -> None:
    (pair.folder / "empty").mkdir()
    other = pair.folder / "other.pt"
    torch.save({"visual.proj": torch.zeros(3, 4)}, other)
    torch_ = ("--set", "tuning.kind=torch", "--set", "tuning.threads=1", "--set")
    assert "empty" in sentence(fednode, *pair.words("a", *torch_, "data.path=empty"))
    model = ("model.name=ViT-B-32", "--set", f"model.pretrained={other}")
    said = sentence(fednode, *pair.words("a", *torch_, *model))
    assert str(other) in said
    assert "ViT-B-32" in said


def test_one_sentence_where_nothing_is(
    pair: Nodes, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = sentence(fednode, "start", "--name", "z")
    assert "peers.yaml" in said
    assert "'z'" in said
    said = sentence(fednode, "status", pair.address["a"])
    assert said.startswith(f"Nobody answers at {pair.address['a']}")
    for words in (("predict", "nothing.jpg"), ("eval",)):
        assert sentence(fednode, *words).startswith("No node has run here")
    (pair.folder / "empty").mkdir()
    monkeypatch.chdir("empty")
    assert sentence(fednode, "start").startswith("There is no peers.yaml here: ")
