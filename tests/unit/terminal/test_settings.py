"""Shared settings and proposed changes of them, as lines."""

from __future__ import annotations

from rich.console import Console

from fednode.observe.settings import Shown, reply_of
from fednode.terminal.settings import in_force, proposal_lines, said
from fednode.terminal.show import node
from fednode.wire.gen import status_pb2
from tests.unit.observe.test_settings import SHOWN


def test_what_is_in_force_and_what_is_proposed_is_said_in_lines() -> None:
    assert said(reply_of(SHOWN)) == [
        "in force: settings 2, signed by a (bbbbbbbbbbbb)",
        "under other settings: d",
        "proposed: settings 3 (cccccccccccc) by b, from round 12 on",
        "  rounds.max: 20 -> 30",
        "  the rounds go on",
        "  here: accepted",
        "  it cannot be accepted here: /home/x/model.pt is missing",
        "  accepted by c",
        "  in force at d",
        "  not accepted yet by e",
    ]


def test_each_member_stands_beside_the_settings_in_force() -> None:
    members = {"b": "undecided", "c": "accepted", "lab": "runs", "a": "runs", "e": "silent"}
    shown = Shown(number=2, digest="b" * 32, signer="a", others=("b",), start=12, members=members)
    assert said(reply_of(shown)) == [
        "in force: settings 2, signed by a (bbbbbbbbbbbb)",
        "  a, lab: under these settings",
        "  c: accepted, begins at round 12 or before",
        "  b: not accepted yet; `fednode settings take` there",
        "  e: has said nothing since this node started",
        "no change is proposed",
    ]


def test_a_mesh_without_documents_says_so() -> None:
    nothing = reply_of(Shown(number=0, digest="", signer=""))
    assert in_force(nothing) == ""
    assert said(nothing) == [
        "in force: the settings of the files of each node",
        "no change is proposed",
    ]


def test_what_waits_says_how_to_decide() -> None:
    proposal = reply_of(SHOWN).proposals[0]
    proposal.decision, proposal.fault = "", ""
    assert proposal_lines(proposal)[-1] == (
        "  decide with `fednode settings take` or `fednode settings refuse`"
    )


def test_the_status_of_a_node_shows_what_is_in_force_and_what_waits() -> None:
    reply = status_pb2.StatusReply(name="a", settings=reply_of(SHOWN))
    reply.settings.proposals[0].decision = ""
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(node(reply))
    text = captured.get()
    assert "settings 2, signed by a (bbbbbbbbbbbb)" in text
    assert "proposed: settings 3 (cccccccccccc) by b, from round 12 on" in text
    reply.settings.proposals[0].decision = "refused"
    with console.capture() as captured:
        console.print(node(reply))
    assert "proposed:" not in captured.get()
