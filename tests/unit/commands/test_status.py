"""`fednode status` for people and programs; what is drawn is compared with what was answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fednode.commands.status import EVERY_S
from fednode.errors import Unreachable
from fednode.observe.client import Client
from tests.unit.commands.canned import node
from tests.unit.commands.run import Fednode


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C be heard, also by programs that a test starts, where a shell had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def two_looks(monkeypatch: pytest.MonkeyPatch, interruptible: None) -> None:
    """End --watch by Ctrl-C after its second look."""
    looks, sleep = [0], asyncio.sleep

    async def pause(seconds: float) -> None:
        looks[0] += seconds == EVERY_S
        if looks[0] == 2:
            signal.raise_signal(signal.SIGINT)
        await sleep(0 if seconds == EVERY_S else seconds)

    monkeypatch.setattr("fednode.commands.status.asyncio.sleep", pause)


def test_by_address_by_name_and_all(fednode: Fednode, peers: Path) -> None:
    with node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        assert fednode("status", address) == 0
        assert "running: round 12 of 150" in fednode.out
        assert fednode("status", "a") == 0
        assert fednode("status", "a", "--format", "json") == 0
        one = json.loads(fednode.out)
        assert one["metrics"]["loss"] == 1.25
        assert (one["round"], one["traffic"]["payload_out"]) == (12, 1500)
        assert one["refused"] == {"norm": 2}
        assert fednode("status") == Unreachable.exit_code
        assert "no answer" in fednode.out
        assert fednode.err == "fednode: 1 of 2 nodes answer; no answer from b.\n"
        lines = fednode.out.splitlines()
        assert lines == [line.rstrip() for line in lines]
        assert fednode("status", "--peers", peers, "--format", "json") == Unreachable.exit_code
        assert [one["name"] for one in json.loads(fednode.out)] == ["a"]


@pytest.mark.usefixtures("two_looks")
def test_watching_in_a_pipe_prints_each_look(fednode: Fednode, peers: Path) -> None:
    with node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        assert fednode("status", "--watch") == 0
        assert [fednode.out.count(text) for text in ("12/150", "no answer")] == [2, 2]
        assert "\x1b" not in fednode.out


@pytest.mark.usefixtures("two_looks")
@pytest.mark.parametrize(
    ("words", "shown"), [([], ["a"]), (["a"], "a"), (["b"], None)], ids=["all", "one", "silent"]
)
def test_watching_as_json_prints_a_line_a_look(
    fednode: Fednode, peers: Path, words: list[str], shown: Any
) -> None:
    def names(told: Any) -> Any:
        return [one["name"] for one in told] if isinstance(told, list) else told and told["name"]

    with node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        assert fednode("status", *words, "--watch", "--format", "json") == 0
    looks = [json.loads(line) for line in fednode.out.splitlines()]
    assert [names(one) for one in looks] == [shown] * 2


@pytest.mark.usefixtures("two_looks")
def test_watching_a_node_that_is_silent_goes_on(fednode: Fednode, peers: Path) -> None:
    assert fednode("status", "a", "--watch") == 0
    assert fednode.out.count("Nobody answers at 127.0.0.1:7191") == 2


def test_watching_on_a_terminal_shows_looks_in_place_until_ctrl_c(interruptible: None) -> None:
    own, theirs = pty.openpty()
    with node() as address:
        words = [sys.executable, "-m", "fednode.cli", "status", address, "--watch"]
        with subprocess.Popen(words, stdin=theirs, stdout=theirs, start_new_session=True) as ran:
            os.close(theirs)
            seen = b""
            while b"round 12 of 150" not in seen:
                seen += os.read(own, 1 << 16)
            ran.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the other end of the terminal is closed
                while True:
                    seen += os.read(own, 1 << 16)
            assert ran.wait() == 0
    os.close(own)
    assert b"\x1b[?1049h" in seen, "a screen of its own"
    assert seen.rstrip().endswith(b"\x1b[?25h\x1b[?1049l"), "cursor and screen are back"


@pytest.mark.parametrize(
    "command", [["status"], ["status", "a"], ["status", "--watch"], ["logs"], ["pause", "a"]]
)
@pytest.mark.parametrize("form", [[], ["--format", "json"]])
def test_what_a_hostile_node_says_is_text(
    command: list[str], form: list[str], fednode: Fednode, peers: Path, two_looks: None
) -> None:
    if command[0] == "pause" and form:
        return
    with node(hostile=True) as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        silent = command == ["status"]  # b does not answer
        assert fednode(*command, *form) == (Unreachable.exit_code if silent else 0)
    assert "52;c;" in fednode.out
    assert all(line.isprintable() for line in fednode.out.splitlines())


def test_nodes_that_refuse_are_not_called_silent(
    fednode: Fednode, peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: Client, address: str) -> None:
        raise Unreachable("127.0.0.1:7191 hung up: it refuses this node's key.")

    monkeypatch.setattr(Client, "status", refused)
    assert fednode("status") == Unreachable.exit_code
    assert "None of the 2 nodes answers (a, b): 127.0.0.1:7191 hung up: it refuses" in fednode.err


def test_faults_are_sentences(fednode: Fednode, peers: Path) -> None:
    assert "Nobody answers at 127.0.0.1:7191" in fednode.fault("status", "a")
    assert fednode("status") == Unreachable.exit_code
    assert "None of the 2 nodes answers (a, b): start them." in fednode.err
    said = fednode.fault("status", "z")
    assert said == (
        "No peer is called 'z' in peers.yaml, and no node that answers knows one; there are a, b: "
        "give one of these names, or an address as host:port."
    )
    assert "has no port" in fednode.fault("status", "127.0.0.1:")
    peers.unlink()
    assert fednode.fault("logs").startswith("There is no peers.yaml here: give the address of a")
    assert "There is no file" in fednode.fault("status", "a")


def test_logs_of_one_node_and_of_all(fednode: Fednode, peers: Path) -> None:
    with node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        assert fednode("logs", "a") == 0
        assert [line[9:] for line in fednode.out.splitlines()] == ["a info", "a warning"]
        assert fednode("logs", "a", "--level", "warning") == 0
        assert [line[9:] for line in fednode.out.splitlines()] == ["a warning"]
        assert fednode("logs") == 0
        assert [line[9:] for line in fednode.out.splitlines()] == ["a: a info", "a: a warning"]
        assert fednode("logs", address, "--format", "json") == 0
        first = json.loads(fednode.out.splitlines()[0])
        assert (first["level"], first["event"], first["fields"]) == ("info", "kind", {"peer": "b"})
    assert fednode.fault("logs", "b") == "b at 127.0.0.1:7192 does not answer: start it."
