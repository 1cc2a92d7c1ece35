"""A status as a reply: what it says of the rounds again, of paths to peers and of relays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.members.table import Member
from fednode.core.types import MergeCounts
from fednode.core.view import KernelView, Life
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.audience import for_members
from fednode.observe.reply import loading, running
from tests.meshes import Mesh
from tests.unit.observe.nodes import FakeNode
from tests.unit.runtime.daemons import ABOUT, GUARD_S


class Over(FakeNode):
    """A node that ran nine rounds alone."""

    def view(self) -> KernelView:
        return replace(
            super().view(),
            life=Life.FINISHED,
            round=9,
            rounds_max=9,
            merge_counts=MergeCounts(9, 0),
        )


@pytest.mark.parametrize("state", ["alive", "dead"])
async def test_a_node_that_ran_alone_says_what_to_do_once_it_meets_a_peer(state: str) -> None:
    node = Over(peers=(Member(name="b", state=state),), addresses={"b": "127.0.0.1:1"})
    *away, said = running(node, QuadraticLearner("a"), ABOUT).warnings
    assert away == ([] if state == "alive" else ["1 of 1 peers is offline: b (never heard)"])
    lonely = "0 of 9 rounds merged what peers sent"
    met = f"{lonely}, and b can be reached now: fednode reset and fednode start at a begin the"
    assert said == (f"{met} rounds again" if state == "alive" else lonely)


async def test_a_member_that_was_revoked_before_this_node_met_it_is_not_shown() -> None:
    node = FakeNode(peers=(Member(name="c", state="revoked"), Member(name="d")), addresses={})
    about = replace(ABOUT, transport=Mesh().transport("a"))
    (peer,) = running(node, QuadraticLearner("a"), about).peers
    assert (peer.name, peer.address, peer.path) == ("d", "", "")


async def frame_back(frame: bytes, caller: str) -> bytes:
    return frame


async def test_paths_and_relays_are_read_from_the_transport(mesh: Mesh) -> None:
    relay = await mesh.relay()
    receiver, caller = mesh.transport("b", relay.at), mesh.transport("a", relay.at)
    for one in (receiver, caller):
        await one.listen("relay", frame_back)
        assert one.relay is not None
        await one.relay.up.wait()
    await caller.send("relay", b"x", GUARD_S, "b")
    client = caller.relay
    assert client is not None
    about = replace(ABOUT, transport=caller)
    node = FakeNode(peers=(Member(name="b"),), addresses={"b": "relay"})
    (peer,) = running(node, QuadraticLearner("a"), about).peers
    assert peer.path == f"relay {relay.at.address}"
    made = loading(about, 0.0, "")
    (shown,) = made.relays
    assert (shown.address, shown.state, shown.why) == (relay.at.address, "waiting", "")
    assert list(made.warnings) == []
    client.relays[0].up, client.relays[0].why = False, "nobody answers there"
    made = loading(about, 0.0, "")
    assert made.relays[0].state == "lost"
    assert not for_members(made, private=0, tells_classes=True).relays
    assert list(made.warnings) == [client.trouble]
    for one in (receiver, caller):
        await one.close()
