"""What a kernel takes from peers whose messages it refuses or takes too late."""

from __future__ import annotations

from typing import Any

from fednode.core import events as ev
from fednode.core.kernel import Kernel
from fednode.core.types import Update
from tests.unit.core.scenes import FACTS, context, message, only, zerodfl

OTHER: dict[str, Any] = {"fingerprint": "ab", "policy": "promptfl"}
"""The settings of a peer that this node refuses."""


def kernel() -> Kernel:
    made = Kernel(context(), zerodfl(), FACTS, anew=zerodfl)
    made.step(0.0, ev.Started())
    return made


def take(node: Kernel, phase: str, **changed: Any) -> list[ev.Effect]:
    return node.step(1.0, ev.Received(message(phase, **changed), 7))


def code(effects: list[ev.Effect]) -> str:
    (answer,) = only(effects, ev.Answer)
    return answer.code


def test_a_revocation_is_learnt_from_a_member_that_runs_under_other_settings() -> None:
    """No other news of such a member counts; a revoked key must be out at both."""
    node = kernel()
    take(node, "hello", sender="c")
    assert node.view().peers[1].state == "alive"
    news = (
        Update("c", "revoked", 0, "", "id-c", b"proof"),
        Update("c", "alive", 9, "c:2", "id"),
        Update("b", "alive", 3, "b:2", "id-b"),
        Update("d", "alive", 0, "d:1", "id-d"),
    )
    effects = take(node, "hello", members=news, **OTHER)
    assert code(effects) == "refused"
    assert not only(effects, ev.Introduce)
    assert [(peer.name, peer.state, peer.address) for peer in node.view().peers] == [
        ("b", "refused", ""),
        ("c", "revoked", ""),
    ]
    (hello,) = only(node.step(2.0, ev.TimerFired("kernel.probe")), ev.Send)
    assert hello.to == "b"
    assert [update.name for update in hello.message.members] == ["a", "c"], "it is passed on"


def test_a_revocation_of_another_mesh_or_of_a_stranger_counts_nothing() -> None:
    node = kernel()
    take(node, "hello", sender="c")
    news = (Update("c", "revoked", 0, "", "id-c", b"proof"),)
    for changed in ({"mesh": "other"}, {"sender": "zoe"}, {"phase": "prompts", **OTHER}):
        effects = take(node, **{"phase": "hello", "members": news, **changed})
        assert code(effects) == "refused"
        assert node.view().peers[1].state == "alive"
