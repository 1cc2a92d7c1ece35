"""What counts of the news of a member that is refused."""

from __future__ import annotations

import pytest

from fednode.core.events import Introduce, Send
from fednode.core.members.apart import heard_apart
from fednode.core.members.swim import Swim
from fednode.core.settings import LAN
from fednode.core.types import Update
from fednode.testing.player import frame
from tests.unit.core.scenes import only

OWN = Update("b", "alive", 3, "b:2", "id-b", b"lease")
NEW = Update("d", "alive", 0, "d:1", "id-d", b"lease")
OF_OTHERS = (Update("c", "dead", 9, "c:9", "id-x"), Update("c", "suspect", 9))
NEWS = (OWN, NEW, *OF_OTHERS, Update("a", "suspect", 4))


@pytest.fixture
def swim() -> Swim:
    """Return node a, which refuses b."""
    context = frame("local", peers=("b", "c"), mesh="mesh", fingerprint="ab", address="a:1")
    made = Swim(context, LAN, lambda phase: context.message(3, phase))
    for peer in ("b", "c"):
        made.heard(0.0, peer, 1)
    made.members.refused("b", 0.0, "other settings")
    return made


def test_members_meet_through_one_that_runs_under_other_settings(swim: Swim) -> None:
    effects = heard_apart(swim, 1.0, NEWS, "b", introduces=True)
    assert only(effects, Introduce) == [Introduce("b", "b:2"), Introduce("d", "d:1")]
    assert [one.to for one in only(effects, Send)] == ["d"]
    b, c, d = swim.members.view()
    assert (b.state, b.address, b.id, b.incarnation) == ("refused", "b:2", "id-b", 0)
    assert (c.state, c.address, c.id) == ("alive", "", ""), "what it says of others counts nothing"
    assert (d.state, d.address, d.proof) == ("unknown", "d:1", b"lease")
    assert swim.own.incarnation == 0, "nor what it says of this node"
    assert heard_apart(swim, 2.0, NEWS, "b", introduces=True) == [], "it is greeted once"


def test_of_one_that_is_refused_for_another_reason_only_revocations_count(swim: Swim) -> None:
    assert heard_apart(swim, 1.0, NEWS, "b", introduces=False) == []
    assert len(swim.members) == 2
    heard_apart(swim, 1.0, [Update("c", "revoked", 0, "", "", b"proof")], "b", introduces=False)
    assert swim.members["c"].state == "revoked"
