"""Fed-DPT's merge as its host sees it: unweighted means, and what is carried to the next round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from fednode.core.events import PeerDown, Received, RoundDue
from fednode.core.rounds.method import MethodState, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Job, Tensors
from fednode.policies.feddpt import FedDPT, FedDPTConfig
from fednode.testing import frame
from tests.contract.player import Case, Player, report, up

PAIR = ("art", "photo")


def case(**set_: Any) -> Case:
    config = FedDPTConfig(domains=PAIR, wire_dtype="float32", **set_)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(config.text_names, (3, 2))
    shapes.update(dict.fromkeys(config.visual_names, (4,)))
    told = {name: shapes[name] for name in sorted(config.trained("photo"))}
    return Case(FedDPT, config, "sync", shapes, {"prompts": told})


def test_a_slot_is_the_unweighted_mean_of_its_owners() -> None:
    """Algorithm 1, line 16: whatever number of images the senders report."""
    one = case()
    player = up(Player(one.start()))
    player.feed(PeerDown("d"))
    player.feed(RoundDue(1))
    assert player.tune is not None
    own = report(player.tune).tensors
    player.tuned()
    heard = [
        replace(one.from_peer(peer, 1), samples=samples) for peer, samples in (("b", 1), ("c", 900))
    ]
    for message in heard:
        player.feed(Received(message))
    player.wait_out()
    found = player.policy.state().tensors
    assert set(own) == {"text.photo", "visual.art", "visual.photo"}
    for name in own:
        rows = np.stack([own[name], *(message.tensors[name] for message in heard)])
        expected = rows.astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)
    np.testing.assert_array_equal(found["text.art"], one.initial["text.art"])  # it has no owner


@pytest.mark.parametrize("optimizer", ["keep", "reset"])
def test_the_optimizer_is_kept_or_reset_as_the_setting_says(
    optimizer: Literal["keep", "reset"],
) -> None:
    player = Player(case(optimizer=optimizer).start())
    for number in (1, 2):
        player.feed(RoundDue(number))
        assert player.tune is not None
        carried = Tensors({"momentum": [1.0]}) if optimizer == "keep" and number == 2 else Tensors()
        assert player.tune.job.carry == carried
        player.wait_out()
        player.adopted()
    kept = Tensors({"momentum": [2.0]}) if optimizer == "keep" else Tensors()
    assert player.policy.state().carry == kept


DOMAINS = ("photo", "art", "sketch")


def node(domain: str = "photo", **set_: Any) -> FedDPT:
    config = FedDPTConfig(domains=DOMAINS, **set_)
    context = frame("feddpt", peers=("b",), rounds=RoundSettings(mode="sync"), domain=domain)
    return FedDPT(config, context)


SLOTS = [*(f"text.{one}" for one in DOMAINS), *(f"visual.{one}" for one in DOMAINS)]
HELD = MethodState(Tensors({name: [0.0, 1.0] for name in SLOTS}))


def tuned(**set_: Any) -> set[str]:
    job = node(**set_).job(Round(1, "prompts", HELD, HELD))
    assert isinstance(job, Job)
    assert set(job.tensors) | set(job.reference) == set(SLOTS)
    return set(job.tensors)


def test_a_node_trains_its_own_text_and_all_visual_tokens() -> None:
    visual = {f"visual.{one}" for one in DOMAINS}
    assert tuned() == {"text.photo", *visual}
    assert tuned(text="train_all") == {*(f"text.{one}" for one in DOMAINS), *visual}
    assert tuned(visual="split") == {"text.photo", "visual.photo"}


def test_a_message_holds_what_some_domain_trains_and_nothing_else() -> None:
    policy = node()
    full = frozenset({"text.art", *(f"visual.{one}" for one in DOMAINS)})
    assert policy.complete(full, frozenset(SLOTS))
    assert not policy.complete(full | {"text.photo"}, frozenset(SLOTS))
    assert not policy.complete(full - {"visual.art"}, frozenset(SLOTS))


def test_a_domain_that_the_mesh_does_not_know_is_a_sentence() -> None:
    config = FedDPTConfig(domains=DOMAINS)
    for domain, said in (("", "data.domain is not set"), ("foto", "data.domain is 'foto'")):
        assert said in FedDPT.settings_fault(config, RoundSettings(), domain)
    with pytest.raises(ValueError, match="names 'a b'"):
        FedDPTConfig(domains=("a b",))
    with pytest.raises(ValueError, match="names 'art' twice"):
        FedDPTConfig(domains=("art", "art"))
    with pytest.raises(ValueError, match="names 0 domains"):
        FedDPTConfig()
