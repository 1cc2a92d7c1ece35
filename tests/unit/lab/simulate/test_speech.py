"""Checks of what honest nodes show: printable text, and the differences that they must report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fednode.core.agreement import DIFFERS, PEERS
from fednode.core.events import Record
from fednode.core.types import Tensors
from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.speech import SaysOnlyText, shown, unsaid


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
