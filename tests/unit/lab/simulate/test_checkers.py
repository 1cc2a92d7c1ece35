"""Checkers of the simulator by value: repeats, printable text, differences to be reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fednode.core.agreement import DIFFERS, PEERS
from fednode.core.events import Received, Record, Send
from fednode.core.policy import RESEND_S
from fednode.core.rounds.exchange import AGAIN
from fednode.core.types import Tensors
from fednode.lab.sim.world import World
from fednode.lab.simulate.checkers import (
    RepeatsItselfSlowly,
    SaysOnlyText,
    Violation,
    shown,
    unsaid,
)
from tests.unit.core.scenes import message

SENT = Send("b", message("prompts", "a"))
ASKED = Received(message(AGAIN, "b"))


def at(now: float) -> World:
    return cast("World", SimpleNamespace(now=now))


def begun(liars: tuple[str, ...] = ()) -> RepeatsItselfSlowly:
    check = RepeatsItselfSlowly(liars=liars)
    check.started(at(0.0), "a")
    return check


def test_three_equal_messages_in_a_moment_break_the_promise() -> None:
    check = begun()
    for now in (0.0, 0.1, RESEND_S, RESEND_S + 0.1):
        check.stepped(at(now), "a", ASKED, [SENT])
    with pytest.raises(Violation, match="sends 'prompts' of round 1 to b too often"):
        check.stepped(at(RESEND_S + 0.2), "a", ASKED, [SENT])


def test_other_peers_messages_of_the_kernel_liars_and_earlier_lives_do_not_count() -> None:
    for peer in "bcdefgh":
        begun().stepped(at(1.0), "a", ASKED, [Send(peer, message("prompts", "a"))] * 2)
    for check, sent in ((begun(), Send("b", message("ping", "a"))), (begun(("a",)), SENT)):
        check.stepped(at(1.0), "a", ASKED, [sent] * 9)
    check = begun()
    for _ in range(5):
        check.started(at(1.0), "a")
        check.stepped(at(1.0), "a", ASKED, [SENT])


def world(mode: str = "sync", **nodes: dict[str, Any]) -> World:
    """Return nodes as the checks see them: round, prompts, whom they call apart, their records."""
    hosts = {}
    kernels = {}
    for name, given in nodes.items():
        prompts = Tensors({"x": [given["holds"]]})
        state = SimpleNamespace(round=given["round"], digest=prompts.digest)
        said = given.get("said", ())
        view = SimpleNamespace(apart=tuple(given.get("apart", said)))
        hosts[name] = SimpleNamespace(
            records=[Record(DIFFERS, "text", fields={PEERS: list(said)})] if said else []
        )
        kernels[name] = SimpleNamespace(
            policy=SimpleNamespace(state=lambda state=state: state, shared_state=True),
            view=lambda view=view: view,
            context=SimpleNamespace(rounds=SimpleNamespace(mode=mode)),
        )
    found = SimpleNamespace(hosts=hosts, now=1.0, kernel=kernels.__getitem__)
    return cast("World", found)


def test_nodes_that_hold_others_prompts_after_the_same_round_must_say_so() -> None:
    made = world(a={"round": 3, "holds": 1.0}, b={"round": 3, "holds": 2.0})
    assert unsaid(made, ["a", "b"]) == "a does not say that b holds others after round 3"


def test_a_difference_is_said_in_the_status_and_in_a_record() -> None:
    a = {"round": 3, "holds": 1.0, "said": ["b"]}
    b = {"round": 3, "holds": 2.0, "said": ["a"]}
    assert unsaid(world(a=a, b=b), ["a", "b"]) == ""
    silent = {**a, "apart": ()}
    assert unsaid(world(a=silent, b=b), ["a", "b"]).startswith("a does not say that b")


def test_other_rounds_and_equal_prompts_are_no_difference() -> None:
    made = world(a={"round": 3, "holds": 1.0}, b={"round": 4, "holds": 2.0})
    assert unsaid(made, ["a", "b"]) == ""
    made = world(a={"round": 3, "holds": 1.0}, b={"round": 3, "holds": 1.0})
    assert unsaid(made, ["a", "b"]) == ""


def test_a_record_that_is_not_printable_breaks_the_promise_and_a_liar_s_does_not() -> None:
    bad = Record("peer.up", "b\x1b[2J is up")
    made = world(a={"round": 1, "holds": 1.0})
    with pytest.raises(Violation, match=r"SaysOnlyText: at 1\.000 s a shows 'b\\x1b\[2J is up'"):
        SaysOnlyText().stepped(made, "a", cast("Any", None), [bad])
    SaysOnlyText(liars={"a"}).stepped(made, "a", cast("Any", None), [bad])
    SaysOnlyText().stepped(made, "a", cast("Any", None), [Record("peer.up", "b is up")])


def test_every_text_of_a_status_is_looked_at() -> None:
    peer = SimpleNamespace(name="b", state="dead", reason="why", address="b:1", id="ID")
    view = SimpleNamespace(
        life="running", phase="idle", metrics={"loss": 1.0}, refused={"norm": 1}, peers=(peer,)
    )
    assert set(shown(cast("Any", view))) == {
        "running", "idle", "loss", "norm", "b", "dead", "why", "b:1", "ID",
    }  # fmt: skip
