"""`fednode status` for people and programs; what is drawn is compared with what was answered."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from fednode import units
from fednode.commands import top
from fednode.errors import Unreachable
from fednode.observe.events import LEVELS
from fednode.terminal import live, show
from fednode.wire.gen import status_pb2, status_pb2_grpc
from tests.unit.commands.run import Fednode


def reply(**changed: Any) -> status_pb2.StatusReply:
    made = status_pb2.StatusReply(
        name="a",
        mesh="clinic",
        address="127.0.0.1:7191",
        policy="zerodfl",
        life="running",
        round=12,
        rounds_max=150,
        phase="tuning",
        step=3,
        steps=8,
        metrics={"loss": 1.25, "own": 0.5, "zero_shot_own": 0.25},
        measured={"own": 0.5},
        uptime_s=200,
        samples=40,
        classes=[f"class {number}" for number in range(9)],
        model="fednode-mini",
        backbone="0123456789abcdef",
        alone=True,
        refused={"norm": 2},
        notes=["a note"],
        traffic=status_pb2.Traffic(messages_out=7, payload_out=1500, serialized_out=2_000_000),
    )
    made.peers.add(
        name="b", address="127.0.0.1:7192", state="dead", round=11, heard_s=90,
        reason="nobody answers", shown={"chosen": "4"},
    )  # fmt: skip
    made.shown["pool"] = "b (round 11, 4 rows)"
    made.events.add(level="warning", text="b is dead")
    made.MergeFrom(status_pb2.StatusReply(**changed))
    return made


NASTY = "\x1b]0;title\x07\x1b]52;c;Y2xpcA==\x07\x1b[2J\u202e[/ghost]"


def hostile() -> status_pb2.StatusReply:
    """Return what a daemon may say of itself and its peers that wants to harm who looks."""
    made = reply(name=NASTY, address=NASTY, life=NASTY, phase=NASTY, mesh=NASTY, uptime_s=1e300)
    made.metrics.update({"loss": 1e308, NASTY: float("nan")})
    made.refused[NASTY] = 1
    made.peers[0].MergeFrom(
        status_pb2.Peer(name="[/ghost]", address=NASTY, state=NASTY, heard_s=1e300, reason=NASTY)
    )
    made.events.add(time=1e300, text=NASTY, level=NASTY)
    return made


def drawn(page: RenderableType, width: int = 100) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(page)
    return captured.get()


def test_a_node_in_full() -> None:
    page = drawn(show.node(reply()))
    for part in (
        "a of mesh clinic at 127.0.0.1:7191, zerodfl, up 3 min",
        "running, round 12 of 150, tuning (step 3 of 8); no peer answers: it goes on alone",
        "loss 1.25, own 50.0 %, zero shot own 25.0 %",
        "40 training images of class 0, class 1, class 2, class 3, class 4, class 5 and 3 more",
        "fednode-mini (0123456789ab)",
        "b (round 11, 4 rows)",
        "2 (norm)",
        "nobody answers",
        "2 min ago",
        "1.5 kB",
        "2.0 MB",
        "note: a note",
        "warning: b is dead",
    ):
        assert part in page


def test_what_is_wrong_now_is_shown_for_a_node_and_for_a_mesh() -> None:
    made = reply(warnings=["b speaks, but this node cannot reach it: a reason"])
    assert "warning: b speaks, but this node cannot reach it: a reason" in drawn(show.node(made))
    page = drawn(show.mesh([(("a", "127.0.0.1:7191"), made)]))
    assert page.splitlines()[-1] == "a: b speaks, but this node cannot reach it: a reason"
    made.notes.append("the first round waits for b, 100 s more at most")
    page = drawn(show.mesh([(("a", "127.0.0.1:7191"), made)]))
    assert page.splitlines()[-2] == "a: the first round waits for b, 100 s more at most"
    assert "a note" not in page
    seen = live.Seen("a", "running", made, live.Past())
    assert "a: the first round waits for b" in drawn(live.page(Text("head"), [seen]))
    assert "a: b speaks, but this" in drawn(live.page(Text("head"), [seen]))


def test_what_the_policy_shows_has_its_own_rows_and_columns() -> None:
    made = reply()
    assert "chosen" in drawn(show.node(made))
    assert "pool" in drawn(show.node(made))
    del made.peers[0].shown["chosen"]
    made.peers[0].shown["weight"] = "0.75"
    made.shown["temperature"] = "2.5"
    page = [line.split() for line in drawn(show.node(made)).splitlines()]
    assert ["temperature", "2.5"] in page
    at = next(number for number, line in enumerate(page) if line[:1] == ["peer"])
    assert page[at][3:6] == ["round", "weight", "heard"]
    assert page[at + 1][3:5] == ["11", "0.75"]
    assert "chosen" not in drawn(show.node(made))


def test_a_fault_is_shown_with_its_time() -> None:
    made = reply()
    made.events[0].time = 12 * 3600.0
    shown = drawn(show.node(made))
    clock = time.strftime("%H:%M:%S", time.localtime(12 * 3600.0))
    assert f"warning: b is dead ({clock})" in shown


def test_a_node_that_loads_has_no_rounds_yet() -> None:
    page = drawn(show.node(status_pb2.StatusReply(name="a", life="loading", model="m")))
    assert "loading: model and images" in page
    assert "round" not in page.splitlines()[1]


def test_a_mesh_has_a_line_for_each_node_and_for_the_silent_ones() -> None:
    targets = [("a", "127.0.0.1:7191"), ("b", "127.0.0.1:7192")]
    page = drawn(show.mesh([(targets[0], reply()), (targets[1], None)])).splitlines()
    assert page[0].split()[-4:] == ["own", "%", "peers", "sent"]
    assert page[1].split()[:4] == ["a", "127.0.0.1:7191", "running", "12/150"]
    assert page[1].split()[4:] == ["1.25", "50.0", "0/1", "2.0", "MB"]
    assert page[2].split() == ["b", "127.0.0.1:7192", "no", "answer"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (120, "2 min"), (7200, "2 h"), (864_000, "10 days")],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e12, "2500.0 GB")]
)
def test_sizes(count: float, text: str) -> None:
    assert units.size(int(count)) == text


class Canned(status_pb2_grpc.NodeServicer):
    """A node that always answers the same; hostile: with texts that harm a terminal."""

    def __init__(self, hostile: bool = False) -> None:
        self.hostile = hostile

    async def Status(self, request: Any, context: Any) -> status_pb2.StatusReply:
        return hostile() if self.hostile else reply()

    async def Control(self, request: Any, context: Any) -> status_pb2.ControlReply:
        return status_pb2.ControlReply(text=NASTY)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[status_pb2.Event]:
        if self.hostile:
            yield status_pb2.Event(time=1e300, text=NASTY, level="[/x]", fields={NASTY: NASTY})
            return
        for number, level in enumerate(("info", "warning"), 1):
            if number > request.since and LEVELS[level] >= LEVELS[request.level]:  # type: ignore[index]
                yield status_pb2.Event(
                    time=1e9 + number, kind="kind", text=f"a {level}", level=level, number=number,
                    fields={"peer": "b"},
                )  # fmt: skip


@contextmanager
def node(hostile: bool = False) -> Iterator[str]:
    """Serve a canned node from a thread of its own; yield its address."""
    ready, stop = threading.Event(), threading.Event()
    port: list[int] = []

    async def serve() -> None:
        server = grpc.aio.server()
        status_pb2_grpc.add_NodeServicer_to_server(Canned(hostile), server)
        port.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        ready.set()
        await asyncio.get_running_loop().run_in_executor(None, stop.wait)
        await server.stop(None)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield f"127.0.0.1:{port[0]}"
    finally:
        stop.set()
        thread.join()


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
        assert fednode("status") == 0
        assert "no answer" in fednode.out
        assert fednode("status", "--peers", peers, "--format", "json") == 0
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
        assert fednode(*command, *form) == 0
    assert "52;c;" in fednode.out
    assert all(line.isprintable() for line in fednode.out.splitlines())


def test_markup_and_endless_losses_are_drawn_as_they_are() -> None:
    shown = drawn(show.node(reply(address="[/ghost]", phase="[/x]")), 300)
    assert "[/ghost]" in shown
    past = live.Past()
    for number, loss in enumerate((1.0, float("inf"), float("nan"), 2.0), 1):
        past.note(status_pb2.StatusReply(round=number, metrics={"loss": loss}), float(number))
    assert live.bars(list(past.losses)) == "▁█"


def test_faults_are_sentences(fednode: Fednode, peers: Path) -> None:
    assert "Nobody answers at 127.0.0.1:7191" in fednode.fault("status", "a")
    assert fednode("status") == Unreachable.exit_code
    assert "None of the 2 nodes of peers.yaml answers" in fednode.err
    said = fednode.fault("status", "z")
    assert said == (
        "No peer is called 'z' in peers.yaml; there are a, b: give one of these names, or an "
        "address as host:port."
    )
    assert "has no port" in fednode.fault("status", "127.0.0.1:")
    peers.unlink()
    assert fednode.fault("logs").startswith("There is no peers.yaml here: give the address of a")
    assert "There is no file" in fednode.fault("status", "a")


def test_top_shows_the_whole_mesh(fednode: Fednode, peers: Path) -> None:
    with node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        assert fednode("top", "--times", "1") == 0
        for part in ("1 of 2 nodes answer", "mesh clinic, zerodfl", "no answer", "12/150", "b is"):
            assert part in fednode.out
        assert fednode("top", "--times", "2", "--format", "json") == 0
        looks = [json.loads(line) for line in fednode.out.splitlines()]
        assert len(looks) == 2
        assert looks[0]["nodes"][address]["round"] == 12
        assert looks[0]["nodes"]["127.0.0.1:7192"] is None


def test_the_matrix_says_who_sent_to_whom() -> None:
    traffic = status_pb2.Traffic(messages_out=1234)
    one = status_pb2.StatusReply(name="a", peers=[status_pb2.Peer(name="b", traffic=traffic)])
    shown = drawn(top.page([(("a", "x"), one), (("b", "y"), None)], {}, "12:00:00"))
    lines = [line.split() for line in shown.splitlines()]
    assert ["a", "·", "1,234"] in lines
    assert ["b", "?", "·"] in lines


def test_the_live_view_shows_what_each_node_measures_and_why_one_says_nothing() -> None:
    one = status_pb2.StatusReply(
        name="a", life="running", round=3, rounds_max=9, phase="tuning", step=2, steps=5,
        metrics={"loss": 1.25}, measured={"own": 0.9, "base": 0.5, "new": 0.25}, alone=True,
    )  # fmt: skip
    coming = status_pb2.StatusReply(name="b", life="loading")
    nodes = [
        live.Seen("a", "running", one, live.Past()),
        live.Seen("b", "loading", coming, live.Past()),
        live.Seen("c", "exit code 70", None, live.Past()),
    ]
    assert [" ".join(line.split()) for line in drawn(live.table(nodes)).splitlines()] == [
        "node state round doing loss own % base % new % peers sent a second",
        "a running 3/9 tuning 2/5 1.25 90.0 50.0 25.0 alone 0 B 0 B/s",
        "b loading",
        "c exit code 70",
    ]


def test_losses_as_bars_and_bytes_a_second() -> None:
    assert live.bars([]) == ""
    assert live.bars([1.0, 2.0, 3.0]) == "▁▅█"
    assert live.bars([2.0, 2.0]) == "▁▁"
    past = live.Past()
    for moment, number in enumerate((5, 6, 6, 7)):
        traffic = status_pb2.Traffic(serialized_out=1000 * moment)
        made = status_pb2.StatusReply(round=number, metrics={"loss": number}, traffic=traffic)
        past.note(made, 10.0 + moment)
    assert list(past.losses) == [5, 6, 7]
    assert past.rate == 1000.0


def test_logs_of_one_node_and_of_all(fednode: Fednode, peers: Path) -> None:
    with node() as address:
        peers.write_text(peers.read_text().replace("127.0.0.1:7191", address))
        assert fednode("logs", "a") == 0
        assert [line[9:] for line in fednode.out.splitlines()] == ["a info", "a warning"]
        assert fednode("logs", "a", "--level", "warning") == 0
        assert [line[9:] for line in fednode.out.splitlines()] == ["a warning"]
        assert fednode("logs", "--last", "1") == 0
        assert [line[9:] for line in fednode.out.splitlines()] == ["a: a warning"]
        assert fednode("logs", address, "--format", "json") == 0
        first = json.loads(fednode.out.splitlines()[0])
        assert (first["level"], first["event"], first["fields"]) == ("info", "kind", {"peer": "b"})
    assert fednode.fault("logs", "b") == "b at 127.0.0.1:7192 does not answer: start it."


@pytest.mark.parametrize("command", ["status", "logs", "top"])
def test_a_mesh_that_lists_nobody_is_not_called_silent(
    fednode: Fednode, tmp_path: Path, command: str
) -> None:
    key = "-".join(["AAAAAAAA"] * 6 + ["AAAA"])
    text = f"mesh: m\nmesh_key: {key}\nintroducer: 127.0.0.1:7099\n"
    (tmp_path / "peers.yaml").write_text(text)
    assert fednode.fault(command) == (
        "peers.yaml lists no nodes, because they enrol with an introducer: give the address of a "
        "node, host:port."
    )


def test_exit_codes_tell_faults_apart(fednode: Fednode, peers: Path, tmp_path: Path) -> None:
    assert fednode("status", "a") == 5
    assert fednode("status", "a", "--format", "xml") == 2
    assert fednode("status", "z") == 2
    assert fednode("eval", "--state", tmp_path / "none") == 4


def test_what_an_earlier_round_measured_is_shown_as_that() -> None:
    made = status_pb2.StatusReply(
        name="a", life="running", round=7, metrics={"loss": 1.0}, measured={"own": 0.75}
    )
    console = Console(width=100, record=True)
    console.print(show.node(made))
    text = console.export_text()
    assert "last round   loss 1" in text
    assert "as measured  own 75.0 %" in text
