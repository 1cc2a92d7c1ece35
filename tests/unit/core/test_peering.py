"""What a kernel takes from peers that know, or run under, other settings documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fednode.core import events as ev
from fednode.core.documents import BEGUN, PROPOSED, Documents
from fednode.core.facts import fingerprint
from fednode.core.kernel import Kernel
from fednode.core.peering import RELEASE, Peering
from fednode.core.run import Parts
from fednode.core.types import Document, PolicyState, Terms, Update
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.exchange import ZeroDFL
from tests.unit.core.scenes import FACTS, PROMPTS, context, message, only, recorded, zerodfl

ONE = Document(1, "5" * 32, 3, b"one")
LATER = {**FACTS, "rounds.max": "9"}


def under(digest: str, state: PolicyState) -> Parts:
    """Return a node of nine rounds."""
    assert digest == ONE.digest
    frame = replace(context(max=9), fingerprint=fingerprint(LATER))
    policy = ZeroDFL.restore(ZeroDFLConfig(), frame, state)
    return Parts(context=frame, policy=policy, facts=LATER, anew=zerodfl, begins=False)


def kernel(documents: Documents | None = None) -> Kernel:
    made = Kernel(context(), zerodfl(), FACTS, anew=zerodfl, documents=documents, under=under)
    assert isinstance(made, Peering)
    made.step(0.0, ev.Started())
    return made


def take(node: Kernel, phase: str, **changed: Any) -> list[ev.Effect]:
    return node.step(1.0, ev.Received(message(phase, **changed), 7))


def answer(effects: list[ev.Effect]) -> tuple[str, str]:
    (one,) = only(effects, ev.Answer)
    return one.code, one.detail


def accepted() -> Kernel:
    node = kernel()
    take(node, "settings", document=ONE)
    node.step(1.0, ev.Decided(ONE.digest, True))
    return node


def switched() -> Kernel:
    """Return a node that runs under the document."""
    node = accepted()
    take(node, "hello", terms=Terms(ONE.digest, "", ONE.digest), fingerprint=fingerprint(LATER))
    assert node.documents.switching
    effects = node.step(1.0, ev.Switched(ONE.digest))
    assert BEGUN in recorded(effects)
    return node


def test_a_document_is_taken_whatever_settings_its_sender_has() -> None:
    node = kernel()
    effects = take(node, "settings", document=ONE, fingerprint="ab", policy="promptfl")
    assert answer(effects) == ("ok", "")
    assert recorded(effects) == [PROPOSED]
    assert only(effects, ev.Offer) == [ev.Offer(ONE)]
    again = take(node, "settings", document=ONE)
    assert answer(again) == ("ok", "")
    assert not only(again, ev.Offer)


def test_a_document_that_the_host_does_not_believe_is_nothing() -> None:
    effects = take(kernel(), "settings", document=None)
    assert answer(effects) == ("ok", "")
    assert not only(effects, ev.Offer)


def test_nobody_but_a_member_brings_documents() -> None:
    for changed in ({"sender": "zoe"}, {"mesh": "other"}):
        effects = take(kernel(), "settings", document=ONE, **changed)
        assert answer(effects)[0] == "refused"
        assert not only(effects, ev.Offer)


def test_who_is_refused_for_its_settings_is_told_of_the_document() -> None:
    node = switched()
    effects = take(node, "hello", terms=None)
    code, text = answer(effects)
    assert code == "refused"
    assert text.startswith("'b' runs under the settings of its own files, and 'a' under")
    passed = [one for one in only(effects, ev.Send) if one.message.phase == "settings"]
    assert [(one.to, one.message.document) for one in passed] == [("b", ONE)]


def test_membership_goes_on_while_two_nodes_change_to_the_same_settings() -> None:
    node = accepted()
    ahead = take(
        node, "ping", terms=Terms(ONE.digest, "", ONE.digest), fingerprint=fingerprint(LATER)
    )
    assert answer(ahead)[0] == "ok"
    node = switched()
    behind = take(node, "ping", sender="c", terms=Terms(accepts=ONE.digest))
    assert answer(behind)[0] == "ok"
    assert "c" in node._members.live()


def test_messages_of_rounds_wait_until_both_have_changed_and_cost_nothing() -> None:
    node = accepted()
    take(node, "ping", sender="c", terms=Terms(accepts=ONE.digest))
    take(node, "ping", terms=Terms(ONE.digest, "", ONE.digest), fingerprint=fingerprint(LATER))
    ahead = take(node, "prompts", fingerprint=fingerprint(LATER))
    assert answer(ahead) == ("busy", "'a' begins the same settings after its round")
    assert not recorded(ahead)
    node.step(1.0, ev.Switched(ONE.digest))
    behind = take(node, "prompts", sender="c")
    assert answer(behind) == ("stale", "'a' runs under newer settings already")
    assert not recorded(behind)
    for _ in range(50):
        take(node, "prompts", sender="c")
    assert not only(behind, ev.TurnAway)
    assert ev.SetTimer(RELEASE + "c", 60.0) not in behind


def test_a_node_goes_on_under_the_document_from_the_state_that_it_had() -> None:
    node = switched()
    assert node.context.rounds.max == 9
    assert node.policy.state().tensors == PROMPTS
    said = node._message("hello")
    assert said.terms == Terms(ONE.digest, "", ONE.digest)
    assert dict(said.facts) == LATER


def test_the_end_of_a_message_of_earlier_settings_is_not_told_to_the_policy() -> None:
    """ZeroDFL would draw another peer, and has tuned nothing yet."""
    node = switched()
    old = message("prompts", "a", round=node.policy.round + 1)
    assert not only(node.step(2.0, ev.Undelivered("b", old, "stale", "later")), ev.Send)
    told = list[ev.Event]()

    def tell(now: float, event: ev.Event) -> list[ev.Effect]:
        told.append(event)
        return []

    node._run.tell = tell  # type: ignore[method-assign]
    node.step(2.0, ev.Undelivered("b", old, "stale", "later"))
    assert told == []
    node.step(2.0, ev.Undelivered("b", replace(old, fingerprint=fingerprint(LATER)), "busy", ""))
    assert len(told) == 1


def test_a_node_that_cannot_change_goes_on_as_before() -> None:
    node = accepted()
    take(node, "hello", terms=Terms(ONE.digest, "", ONE.digest), fingerprint=fingerprint(LATER))
    effects = node.step(1.0, ev.SwitchFailed(ONE.digest, "no space left"))
    assert "settings.failed" in recorded(effects)
    assert node.context.rounds.max == 5
    assert not node.documents.switching


def test_a_revocation_is_learnt_from_a_member_that_runs_under_other_settings() -> None:
    """Such members take no other news of known members; a revoked key must be out at both."""
    node = kernel()
    take(node, "hello", sender="c")
    assert node.view().peers[1].state == "alive"
    news = (Update("c", "revoked", 0, "", "id-c", b"proof"), Update("c", "alive", 9, "c:2", "id"))
    effects = take(node, "hello", fingerprint="ab", policy="promptfl", members=news)
    assert answer(effects)[0] == "refused"
    assert [(peer.name, peer.state) for peer in node.view().peers] == [
        ("b", "refused"),
        ("c", "revoked"),
    ], "other news of such a member counts nothing"
    greeting = node.step(2.0, ev.TimerFired("kernel.probe"))
    (hello,) = only(greeting, ev.Send)
    assert hello.to == "b"
    assert [update.name for update in hello.message.members] == ["a", "c"], "it is passed on"


def test_members_meet_through_a_member_that_runs_under_other_settings() -> None:
    """Its own address and key count, and members that it names; what it says of others does not."""
    node = kernel()
    take(node, "hello", sender="c")
    other: dict[str, Any] = {"fingerprint": "ab", "policy": "promptfl"}
    own, new = Update("b", "alive", 3, "b:2", "id-b"), Update("d", "alive", 0, "d:1", "id-d")
    news = (own, new, Update("c", "dead", 9, "c:9", "id-x"))
    effects = take(node, "hello", members=news, **other)
    assert answer(effects)[0] == "refused"
    assert [one.to for one in only(effects, ev.Send)] == ["d"]
    for _ in range(100):
        node.step(2.0, ev.Misbehaved("b", "it lies"))
    more = (Update("e", "alive", 0, "e:1", "id-e"),)
    take(node, "hello", members=more, **other)
    assert [peer.name for peer in node.view().peers] == ["b", "c", "d"], "of a liar it takes none"


def test_a_node_that_restarts_hears_the_settings_of_live_peers_before_its_next_round() -> None:
    """It accepted settings before; a peer that answers may run under them by now."""
    documents = Documents(held={ONE.digest: ONE}, accepted={ONE.digest})
    held = PolicyState(1, PROMPTS, PROMPTS)
    policy = ZeroDFL.restore(ZeroDFLConfig(), context(), held)
    node = Kernel(context(), policy, FACTS, anew=zerodfl, documents=documents, under=under)
    node.step(0.0, ev.Started())
    effects = node.step(1.0, ev.Delivered("b", message("hello", "a")))
    assert node.view().peers[0].state == "alive"
    assert node.view().life == "waiting", "an answer does not say under which settings b runs"
    effects = take(node, "ping", terms=Terms(ONE.digest, "", ONE.digest), fingerprint="other")
    assert only(effects, ev.Switch) == [ev.Switch(ONE)]
    assert "round.began" not in recorded(effects)
    effects = node.step(1.0, ev.Switched(ONE.digest))
    assert node.view().life == "running"
    assert "round.began" in recorded(effects)


def test_it_goes_on_under_the_old_settings_if_its_peers_do() -> None:
    documents = Documents(held={ONE.digest: ONE}, accepted={ONE.digest})
    policy = ZeroDFL.restore(ZeroDFLConfig(), context(), PolicyState(1, PROMPTS, PROMPTS))
    node = Kernel(context(), policy, FACTS, anew=zerodfl, documents=documents, under=under)
    node.step(0.0, ev.Started())
    node.step(1.0, ev.Delivered("b", message("hello", "a")))
    effects = take(node, "ping", terms=Terms("", ONE.digest, ONE.digest))
    assert "round.began" in recorded(effects)
    assert node.view().life == "running"


def test_a_message_that_comes_too_late_is_no_warning() -> None:
    node = kernel()
    take(node, "prompts", round=3)
    effects = take(node, "prompts", round=2)
    assert answer(effects)[0] == "stale"
    assert [one.level for one in only(effects, ev.Record)] == ["info"]
    (other,) = only(take(node, "prompts", sender="zoe"), ev.Record)
    assert other.level == "warning"
