"""What is drawn of a node and of a mesh, compared with what was answered."""

from __future__ import annotations

import time
from typing import Any

import pytest
from rich.text import Text

from fednode.terminal import show
from fednode.wire.gen.status_pb2 import Gain, Peer, StatusReply
from fednode_bootstrap import view
from tests.unit.commands.canned import drawn, member, reply

A, B = ("a", "127.0.0.1:7191"), ("b", "127.0.0.1:7192")
UNREACHED = "b speaks, but this node cannot reach it: a reason"
WAITS = "before round 1 this node waits for b, 100 s more at most"
LOADS = "examining images 1,200 of 2,870 (12 s, about 17 s left)"
CLOCK = time.strftime("%H:%M:%S", time.localtime(12 * 3600.0))


def loading(**changed: Any) -> StatusReply:
    return StatusReply(name="a", life="loading", model="m", **changed)


@pytest.mark.parametrize(
    ("made", "parts"),
    [
        (
            reply(),
            [
                "a of mesh clinic at 127.0.0.1:7191",
                "running: round 12 of 150, tuning (step 3 of 8); no peer takes part: it goes on",
                *("fednode-mini (0123456789ab)", "offline", "b: nobody answers", "2 min ago"),
                *("2.0 MB", "note: a note", "warning: an image is damaged"),
            ],
        ),
        (reply(events=[{"text": "late", "level": "error", "time": 43200.0}]), ["error: late ("]),
        (reply(warnings=[UNREACHED]), [f"warning: {UNREACHED}"]),
        (reply(compared=["round 150: mesh 51.5"]), ["does it help? round 150: mesh 51.5"]),
        (reply(peers=[Peer(name="c", address="relay", path="direct")]), ["path", "direct"]),
        (reply(address="[/ghost]", phase="[/x]"), ["at [/ghost]", "[/x]"]),
        (loading(), ["loading: model and images"]),
        (loading(working=LOADS), [f"loading: {LOADS}"]),
    ],
)
def test_a_node_in_full(made: StatusReply, parts: list[str]) -> None:
    page = " ".join(drawn(show.node(made), 300).split())
    assert [part for part in parts if part not in page] == []
    assert ("path" in page) == ("path" in parts)
    assert ("round" in page) == (made.life != "loading")


def test_why_a_peer_is_away_is_said_once_and_a_fault_has_its_time() -> None:
    made = reply(warnings=["1 of 1 peers is offline: b (last heard 90 s ago; nobody answers)"])
    made.events[0].time = 12 * 3600.0
    page = drawn(show.node(made))
    assert page.count("nobody answers") == 1
    assert f"warning: an image is damaged ({CLOCK})" in page


def test_in_a_pipe_no_line_is_wrapped_or_padded(capsys: pytest.CaptureFixture[str]) -> None:
    text = "b cannot be reached, " * 20 + "127.0.0.1:31415"
    show.print_whole(show.node(reply(warnings=[text])))
    out = capsys.readouterr().out
    assert f"warning: {text}\n" in out
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_a_mesh_has_a_line_for_each_node_and_for_the_silent_ones() -> None:
    finished = StatusReply(name="c", life="paused", round=50, rounds_max=50)
    finished.measured.update({"own": 0.5, "zero_shot_own": 0.25})
    nodes = [(A, reply()), (B, None), (("c", "c:1"), finished)]
    head, *rows = (line.split() for line in drawn(show.mesh(nodes)).splitlines())
    assert head[-6:] == ["own", "%", "zero-shot", "%", "peers", "sent"]
    assert rows == [
        [*A, "running", "12/150", "1.25", "50.0", "0/1", "2.0", "MB"],
        [*B, "no", "answer"],
        ["c", "c:1", "finished,", "paused", "50/50", "50.0", "25.0", "0/0", "0", "B"],
    ]
    finished.round = 49
    assert "finished" not in drawn(show.mesh(nodes))


def test_a_mesh_says_what_is_wrong_and_what_its_nodes_wait_for() -> None:
    made = reply(warnings=[UNREACHED], notes=[WAITS])
    lines = drawn(show.mesh([(A, made), (B, loading(working=LOADS))])).splitlines()
    assert lines[3:] == [f"a: {WAITS}", f"a: {UNREACHED}", f"b: {LOADS}"]
    page = drawn(view.page(Text("head"), [member("a", "running", made)]))
    assert f"a: {WAITS}" in page
    assert f"a: {UNREACHED}" in page


NO_DIFFERENCE = "no difference found, and one of 10 points would show"


@pytest.mark.parametrize(
    ("counts", "mean", "interval", "verdict"),
    [
        (((100, 8, 20), (300, 10, 25)), "+4.5 points", "+1.2 to +7.8, 400", "the mesh helps"),
        (((100, -8, 20), (300, -10, 25)), "-4.5 points", "-7.8 to -1.2, 400", "the mesh harms"),
        (((100, 8, 20), (50, -4, 25)), "+2.7 points", "-6.1 to +11.4, 150", "cannot tell"),
        (((100, 8, 20), (300, -4, 25)), "+1.0 points", "-2.3 to +4.3, 400", NO_DIFFERENCE),
        (((3, 2, 2), (3, 3, 3)), "+83.3 points", "+10.3 to +100.0, 6", "cannot tell"),
        (((100, 8, 20),), "", "", ""),  # one node's gain is not that of the mesh
        (((100, 8, 20), (0, 0, 0)), "", "", ""),
        (((100, 8, 20), (100, 101, 200)), "", "", ""),  # counts that cannot be
        (((100, 8, 20), (100, -30, 20)), "", "", ""),
        (((100, 8, 20), (100, 1, 10_001)), "", "", ""),
        (((100, 8, 20), (10**10, 10, 10)), "", "", ""),
    ],
)
def test_the_mesh_says_what_all_nodes_gain_together(
    counts: tuple[tuple[int, int, int], ...], mean: str, interval: str, verdict: str
) -> None:
    gains = [Gain(images=of, difference=by, squares=to) for of, by, to in counts]
    page = drawn(show.mesh([(A, reply(gain=gain)) for gain in gains]), 300)
    assert [line for line in page.splitlines() if "together" in line] == [
        "2 nodes together, by the newest `fednode eval` of each: gain over training alone: "
        f"{mean} (95 % interval {interval} images): {verdict}"
    ] * bool(mean)
