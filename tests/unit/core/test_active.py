"""Whether a node takes part in rounds: how its peers learn it, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from fednode import registry
from fednode.core import events as ev
from fednode.core.kernel import Kernel
from fednode.core.members.table import Members
from fednode.core.rounds.gossip import Gossip
from fednode.core.settings import StartSettings
from fednode.core.types import MergeCounts, Snapshot
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from tests.unit.core.scenes import FACTS, PROMPTS, context, message, only, recorded, zerodfl
from tests.unit.core.test_kernel import tuned

ALL = StartSettings(peers=2)


def made(**rounds: Any) -> Kernel:
    """Return node "a", which waits for "b" and "c" before its first round."""
    policy = zerodfl(start=ALL, **rounds)
    return Kernel(policy.context, policy, FACTS, anew=zerodfl)


def hello(sender: str, **changed: Any) -> ev.Received:
    return ev.Received(message("hello", sender, **{"round": 0, **changed}), 7)


def ping(sender: str, active: bool, number: int = 0) -> ev.Received:
    return ev.Received(message("ping", sender, round=number, active=active), 8)


def begun(**rounds: Any) -> tuple[Kernel, list[ev.Effect]]:
    """Return a node and the effects that begin its first round with "b" and "c"."""
    kernel = made(**rounds)
    kernel.step(0.0, ev.Started())
    kernel.step(1.0, hello("b"))
    return kernel, kernel.step(1.0, hello("c"))


def told(effects: list[ev.Effect]) -> dict[str, bool]:
    """Return what hellos say to each peer."""
    hellos = [one for one in only(effects, ev.Send) if one.message.phase == "hello"]
    return {one.to: one.message.active for one in hellos}


def paused() -> Kernel:
    """Return a node that was paused in its first round, which is over."""
    kernel, effects = begun()
    assert told(kernel.step(2.0, ev.Commanded("pause"))) == {}, "its round is under way"
    (adopt,) = only(kernel.step(3.0, tuned(effects)), ev.Adopt)
    effects = kernel.step(4.0, ev.Adopted(adopt.snapshot))
    assert told(effects) == {"b": False, "c": False}
    assert only(effects, ev.Tune) == []
    return kernel


def test_a_paused_node_tells_its_peers_once_its_round_is_over() -> None:
    kernel = paused()
    assert only(kernel.step(5.0, ping("b", active=True)), ev.Answer)[0].code == "inactive"
    effects = kernel.step(6.0, ev.Received(message(sender="b", round=2), 9))
    assert only(effects, ev.Answer)[0].code == "stale", "it has no neighbours"
    assert [one.level for one in only(effects, ev.Record)] == ["info"], "that is nobody's fault"


def test_a_node_that_goes_on_tells_its_peers_before_its_round_begins() -> None:
    effects = paused().step(9.0, ev.Commanded("resume"))
    assert told(effects) == {"b": True, "c": True}
    began = next(at for at, one in enumerate(effects) if isinstance(one, ev.Tune))
    assert all(isinstance(one, ev.Tune) or at < began for at, one in enumerate(effects))
    assert only(effects, ev.Tune)[0].job.round == 2


def test_a_paused_node_that_leaves_says_nothing_else() -> None:
    kernel = paused()
    phases = {one.message.phase for one in only(kernel.step(9.0, ev.Commanded("leave")), ev.Send)}
    assert phases == {"bye"}


def test_a_round_does_not_wait_for_a_peer_that_is_paused_meanwhile() -> None:
    kernel, effects = begun(mode="sync")
    kernel.step(2.0, tuned(effects))
    assert only(kernel.step(3.0, ev.Received(message(sender="b"), 9)), ev.Adopt) == []
    assert len(only(kernel.step(4.0, ping("c", active=False)), ev.Adopt)) == 1


def test_the_first_round_waits_for_a_peer_that_is_paused() -> None:
    kernel = made()
    sent = only(kernel.step(0.0, ev.Started()), ev.Send)
    by_peer = {one.to: one.message for one in sent}
    kernel.step(1.0, ev.acknowledged("b", by_peer["b"], "inactive", ""))
    effects = kernel.step(1.0, ev.acknowledged("c", by_peer["c"], "ok", ""))
    assert only(effects, ev.Tune) == [], "b is live and takes part in no round"
    why = "b (it takes part in no round now; if it is paused: fednode resume b)"
    assert kernel.view().awaited == why
    assert len(only(kernel.step(2.0, hello("b")), ev.Tune)) == 1


def test_the_first_round_waits_for_a_peer_that_ran_alone_and_says_what_to_do() -> None:
    kernel = made()
    kernel.step(0.0, ev.Started())
    kernel.step(1.0, hello("c"))
    kernel.step(1.0, hello("b", round=5, active=False))
    why = "b (it ran all its rounds alone: fednode reset and fednode start there)"
    assert kernel.view().awaited == why
    assert len(only(kernel.step(2.0, hello("b")), ev.Tune)) == 1, "its state directory was emptied"


def test_a_mesh_of_one_is_alone_by_wish() -> None:
    frame = replace(zerodfl().context, peers=())
    kernel = Kernel(frame, ZeroDFL.start(ZeroDFLConfig(), frame, PROMPTS), FACTS, anew=zerodfl)
    assert kernel.view().by_wish
    assert not made().view().by_wish


def over(counts: MergeCounts) -> tuple[Kernel, list[ev.Effect]]:
    """Return a node that starts after its last round, and the effects of its start."""
    policy = zerodfl(max=2, start=ALL)
    state = replace(policy.state(), round=2)
    policy = cast("Gossip", ZeroDFL.restore(policy._config, policy.context, state))
    held = Snapshot(state, {}, merge_counts=counts)
    kernel = Kernel(policy.context, policy, FACTS, restored=held, anew=zerodfl)
    effects = kernel.step(0.0, ev.Started())
    assert "life.finished" in recorded(effects)
    return kernel, effects


def test_a_node_that_ran_all_its_rounds_alone_says_so_with_its_first_hellos() -> None:
    kernel, effects = over(MergeCounts(2, 0))
    assert told(effects) == {"b": False, "c": False}
    assert only(kernel.step(1.0, hello("b")), ev.Answer)[0].code == "inactive"
    effects = kernel.step(2.0, ev.Received(message(sender="b"), 9))
    assert only(effects, ev.Answer)[0].code == "stale"


def test_a_node_that_finished_with_merged_prompts_still_serves_them() -> None:
    kernel, effects = over(MergeCounts(2, 1))
    assert told(effects) == {"b": True, "c": True}
    assert only(kernel.step(1.0, hello("b")), ev.Answer)[0].code == "ok"
    assert "b" in kernel._linked
    kernel.step(2.0, ping("b", active=False))
    for number, code in ((0, "stale"), (1, "ok")):  # a later round of its own: its rounds run again
        effects = kernel.step(3.0, ev.Received(message(sender="b", round=number), 9))
        assert only(effects, ev.Answer)[0].code == code


@pytest.mark.parametrize(("policy", "code"), [("zerodfl", "stale"), ("promptfl", "ok")])
def test_a_late_message_says_nothing_of_its_sender(policy: str, code: str) -> None:
    """Frames of earlier rounds are sent again; only mesh-wide rounds may still need them."""
    kind = registry.policy(policy)
    frame = context(policy, mode=kind.modes[0], start=ALL)
    rounds = kind.start(kind.config_type(), frame, PROMPTS)
    kernel = Kernel(frame, rounds, FACTS, anew=lambda _: rounds)
    kernel.step(0.0, ev.Started())
    for sender in "bc":
        kernel.step(1.0, hello(sender, policy=policy))
    kernel.step(2.0, ev.Received(message("ping", "b", round=7, policy=policy), 8))
    late = ev.Received(message(sender="b", round=3, policy=policy), 9)
    assert only(kernel.step(3.0, late), ev.Answer)[0].code == code
    assert kernel._members["b"].round == 7
    kernel.step(4.0, ev.Received(message("bye", "b", round=7, policy=policy), 10))
    kernel.step(5.0, late)
    assert kernel._members["b"].state == "left"


def test_arrays_that_were_mixed_are_not_taken_again_after_older_ones() -> None:
    kernel, effects = begun()
    newest = ev.Received(message(sender="b", round=5), 9)
    kernel.step(2.0, newest)
    (adopt,) = only(kernel.step(3.0, tuned(effects)), ev.Adopt)
    kernel.step(4.0, ev.Adopted(adopt.snapshot))
    kernel.step(5.0, ev.Received(message(sender="b", round=3), 9))
    kernel.step(6.0, newest)
    assert cast("Gossip", kernel.policy)._inbox == {}


@pytest.mark.parametrize("active", [True, False])
def test_in_async_nobody_waits_for_a_peer_that_is_paused(active: bool) -> None:
    kernel, effects = begun(lead=0)
    for now in (3.0, 5.0):
        (adopt,) = only(kernel.step(now, tuned(effects)), ev.Adopt)
        kernel.step(now, ping("c", active))
        effects = kernel.step(now, ev.Adopted(adopt.snapshot))
    waits = [one.name for one in only(effects, ev.SetTimer)]
    assert (waits, len(only(effects, ev.Tune))) == ((["kernel.round"], 0) if active else ([], 1))


def test_what_a_peer_says_is_kept_for_members_only() -> None:
    members = Members("bc")
    members.set_active("b", True)
    assert (members.inactive, members.activity_changed) == (set(), False)
    members.set_active("b", False)
    assert (members.inactive, members.activity_changed) == ({"b"}, True)
    members.set_active("b", True)
    assert members.inactive == set()
    kernel = made()
    stranger = replace(message("hello", "zoe", round=0), active=False, mesh="another")
    kernel.step(1.0, ev.Received(stranger, 3))
    assert "zoe" not in kernel._members.inactive
