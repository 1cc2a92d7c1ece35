"""What is drawn of a node and of a mesh, compared with what was answered."""

from __future__ import annotations

import time

import pytest
from rich.text import Text

from fednode.terminal import show
from fednode.wire.gen import status_pb2
from fednode_bootstrap import view
from tests.unit.commands.canned import drawn, member, reply


def test_a_node_in_full() -> None:
    page = drawn(show.node(reply()))
    for part in (
        "a of mesh clinic at 127.0.0.1:7191",
        "running: round 12 of 150, tuning (step 3 of 8); no peer takes part: it goes on alone",
        "fednode-mini (0123456789ab)",
        "offline",
        "b: nobody answers",
        "nobody answers",
        "2 min ago",
        "2.0 MB",
        "note: a note",
        "warning: an image is damaged",
    ):
        assert part in page


def test_in_a_pipe_no_line_is_wrapped_or_padded(capsys: pytest.CaptureFixture[str]) -> None:
    text = "b cannot be reached, " * 20 + "127.0.0.1:31415"
    show.print_whole(show.node(reply(warnings=[text])))
    out = capsys.readouterr().out
    assert f"warning: {text}\n" in out
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_a_mesh_shows_the_accuracy_of_the_hand_written_prompt_and_a_finished_node_as_that() -> None:
    one = status_pb2.StatusReply(name="a", life="paused", round=50, rounds_max=50)
    one.measured.update({"own": 0.5, "zero_shot_own": 0.25})
    head, line, *_ = drawn(show.mesh([(("a", "here:1"), one)])).splitlines()
    assert "zero-shot %" in head
    assert line.split() == [
        "a",
        "here:1",
        "finished,",
        "paused",
        "50/50",
        "50.0",
        "25.0",
        "0/0",
        "0",
        "B",
    ]
    one.round = 49
    assert "finished" not in drawn(show.mesh([(("a", "here:1"), one)]))


def test_the_path_to_a_peer_without_an_open_port_is_shown_also_if_it_is_direct() -> None:
    made = reply()
    assert "path" not in drawn(show.node(made))
    made.peers[0].address, made.peers[0].path = "relay", "direct"
    shown = drawn(show.node(made))
    assert "path" in shown
    assert "direct" in shown


def test_why_a_peer_is_away_is_said_once() -> None:
    said = "1 of 1 peers is offline: b (last heard 90 s ago; nobody answers)"
    assert drawn(show.node(reply(warnings=[said]))).count("nobody answers") == 1


def test_what_is_wrong_now_is_shown_for_a_node_and_for_a_mesh() -> None:
    made = reply(warnings=["b speaks, but this node cannot reach it: a reason"])
    assert "warning: b speaks, but this node cannot reach it: a reason" in drawn(show.node(made))
    page = drawn(show.mesh([(("a", "127.0.0.1:7191"), made)]))
    assert page.splitlines()[-1] == "a: b speaks, but this node cannot reach it: a reason"
    made.notes.append("before round 1 this node waits for b, 100 s more at most")
    page = drawn(show.mesh([(("a", "127.0.0.1:7191"), made)]))
    assert page.splitlines()[-2] == "a: before round 1 this node waits for b, 100 s more at most"
    assert "a note" not in page
    seen = member("a", "running", made)
    assert "a: before round 1 this node waits for b" in drawn(view.page(Text("head"), [seen]))
    assert "a: b speaks, but this" in drawn(view.page(Text("head"), [seen]))


def test_a_fault_is_shown_with_its_time() -> None:
    made = reply()
    made.events[0].time = 12 * 3600.0
    shown = drawn(show.node(made))
    clock = time.strftime("%H:%M:%S", time.localtime(12 * 3600.0))
    assert f"warning: an image is damaged ({clock})" in shown


def test_a_node_that_loads_has_no_rounds_yet() -> None:
    page = drawn(show.node(status_pb2.StatusReply(name="a", life="loading", model="m")))
    assert "loading: model and images" in page
    assert "round" not in page.splitlines()[1]


def test_a_node_says_what_the_mesh_brings() -> None:
    one = reply(compared=["round 150: mesh 51.5"])
    assert "does it help? round 150: mesh 51.5" in " ".join(drawn(show.node(one)).split())


NO_DIFFERENCE = "no difference found, and one of 10 points would show"
GAINS: list[tuple[tuple[int, int, int], ...]] = [
    ((100, 8, 20),),
    ((100, 8, 20), (0, 0, 0)),
    ((100, 8, 20), (100, 101, 200)),  # counts that cannot be
    ((100, 8, 20), (100, -30, 20)),
    ((100, 8, 20), (100, 1, 10_001)),
    ((100, 8, 20), (10**10, 10, 10)),
]


def gains(counts: tuple[tuple[int, int, int], ...]) -> list[str]:
    names = ("images", "difference", "squares")
    made = [status_pb2.Gain(**dict(zip(names, one, strict=True))) for one in counts]
    rows = [(("a", "here:1"), reply(gain=one)) for one in made]
    return [line for line in drawn(show.mesh(rows), 300).splitlines() if "together" in line]


@pytest.mark.parametrize("counts", GAINS)
def test_one_node_s_gain_is_not_that_of_the_mesh(counts: tuple[tuple[int, int, int], ...]) -> None:
    assert gains(counts) == []


@pytest.mark.parametrize(
    ("counts", "mean", "interval", "verdict"),
    [
        (((100, 8, 20), (300, 10, 25)), "+4.5 points", "+1.2 to +7.8, 400", "the mesh helps"),
        (((100, -8, 20), (300, -10, 25)), "-4.5 points", "-7.8 to -1.2, 400", "the mesh harms"),
        (((100, 8, 20), (50, -4, 25)), "+2.7 points", "-6.1 to +11.4, 150", "cannot tell"),
        (((100, 8, 20), (300, -4, 25)), "+1.0 points", "-2.3 to +4.3, 400", NO_DIFFERENCE),
        (((3, 2, 2), (3, 3, 3)), "+83.3 points", "+10.3 to +100.0, 6", "cannot tell"),
    ],
)
def test_the_mesh_says_what_all_nodes_gain_together(
    counts: tuple[tuple[int, int, int], ...], mean: str, interval: str, verdict: str
) -> None:
    (line,) = gains(counts)
    assert line == (
        "2 nodes together, by the newest `fednode eval` of each: gain over training alone: "
        f"{mean} (95 % interval {interval} images): {verdict}"
    )


def test_a_node_says_what_it_loads_or_encodes() -> None:
    text = "examining images 1,200 of 2,870 (12 s, about 17 s left)"
    coming = status_pb2.StatusReply(name="a", life="loading", working=text)
    assert drawn(show.node(coming)).splitlines()[1] == f"loading: {text}"
    assert drawn(show.mesh([(("a", "here:1"), coming)])).splitlines()[-1] == f"a: {text}"


def test_a_mesh_has_a_line_for_each_node_and_for_the_silent_ones() -> None:
    targets = [("a", "127.0.0.1:7191"), ("b", "127.0.0.1:7192")]
    page = drawn(show.mesh([(targets[0], reply()), (targets[1], None)])).splitlines()
    assert page[0].split()[-6:] == ["own", "%", "zero-shot", "%", "peers", "sent"]
    assert page[1].split() == [
        "a",
        "127.0.0.1:7191",
        "running",
        "12/150",
        "1.25",
        "50.0",
        "0/1",
        "2.0",
        "MB",
    ]
    assert page[2].split() == ["b", "127.0.0.1:7192", "no", "answer"]


def test_markup_is_drawn_as_it_is() -> None:
    shown = drawn(show.node(reply(address="[/ghost]", phase="[/x]")), 300)
    assert "[/ghost]" in shown
