"""`fednode status` for people and programs; what is drawn is compared with what was answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fednode.commands.status import status
from fednode.errors import Unreachable
from fednode.observe.client import Client
from tests.command_line import named
from tests.unit.commands.canned import node
from tests.unit.commands.run import Fednode


def test_by_address_by_name_and_all(fednode: Fednode, peers: Path) -> None:
    with node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        assert fednode("status", address) == 0
        assert "running, round 12 of 150" in fednode.out
        assert fednode("status", "a") == 0
        assert fednode("status", "a", "--format", "json") == 0
        one = json.loads(fednode.out)
        assert one["metrics"]["loss"] == 1.25
        assert (one["round"], one["traffic"]["payload_out"]) == (12, 1500)
        assert (one["refused"], one["peers"][0]["shown"]) == ({"norm": 2}, {"chosen": "4"})
        assert fednode("status") == Unreachable.exit_code
        assert "no answer" in fednode.out
        assert fednode.err == "fednode: 1 of 2 nodes answer; no answer from b.\n"
        lines = fednode.out.splitlines()
        assert lines == [line.rstrip() for line in lines]
        assert fednode("status", "--peers", peers, "--format", "json") == Unreachable.exit_code
        assert [one["name"] for one in json.loads(fednode.out)] == ["a"]
        assert fednode("status", address, "--quiet") == 0
        assert fednode.out == ""


@pytest.mark.parametrize(
    "command", [["status"], ["status", "a"], ["top", "--times", "2"], ["logs"], ["pause", "a"]]
)
@pytest.mark.parametrize("form", [[], ["--format", "json"]])
def test_what_a_hostile_node_says_is_text(
    command: list[str], form: list[str], fednode: Fednode, peers: Path
) -> None:
    if command[0] == "pause" and form:
        return
    with node(hostile=True) as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        silent = command == ["status"]  # b does not answer
        assert fednode(*command, *form) == (Unreachable.exit_code if silent else 0)
    assert "52;c;" in fednode.out
    assert all(line.isprintable() for line in fednode.out.splitlines())


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("127.0.0.1:7191 hung up: it refuses this node's key.", "hung up: it refuses this node's"),
        ("Cannot send to 127.0.0.1:7191: nobody answers at 127.0.0.1:7191.", "start them."),
    ],
)
def test_nodes_that_refuse_are_not_called_silent(
    why: str, said: str, fednode: Fednode, peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: Client, address: str) -> None:
        raise Unreachable(why)

    monkeypatch.setattr(Client, "status", refused)
    assert fednode("status") == Unreachable.exit_code
    assert "None of the 2 nodes answers (a, b): " in fednode.err
    assert said in fednode.err


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


@pytest.mark.parametrize("command", ["status", "logs", "top"])
def test_a_mesh_that_lists_nobody_is_not_called_silent(
    fednode: Fednode, tmp_path: Path, command: str
) -> None:
    key = "-".join(["AAAAAAAA"] * 6 + ["AAAA"])
    text = f"mesh: m\nmesh_key: {key}\nintroducer: 127.0.0.1:7099\n"
    (tmp_path / "peers.yaml").write_text(text)
    assert fednode.fault(command) == (
        "peers.yaml lists no nodes, because they enrol with an introducer, and none of them ran on "
        "this machine: give the address of a node, host:port."
    )


def test_exit_codes_tell_faults_apart(fednode: Fednode, peers: Path, tmp_path: Path) -> None:
    assert fednode("status", "a") == 5
    assert fednode("status", "a", "--format", "xml") == 2
    assert fednode("status", "z") == 2
    assert fednode("eval", "--state", tmp_path / "none") == 4


def test_its_name_leads_here() -> None:
    assert named("status") is status
