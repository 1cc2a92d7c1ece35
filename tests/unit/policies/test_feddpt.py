"""Fed-DPT: its arrays and who trains them, its exchange, and its objective against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from fednode.clip.model import FrozenClip
from fednode.clip.prefix_text import ClassTokens
from fednode.core.events import PeerDown, Received, RoundDue
from fednode.core.rounds.method import MethodState, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Job, Tensors
from fednode.learn.prompt_module import Batch
from fednode.policies.feddpt import MOVED, FedDPT, FedDPTConfig, FedDPTPrompts
from fednode.testing import frame
from tests.contract.player import Case, Player, report, up
from tests.unit.learn.jobs import batch, first_loss, given, leaves, started
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    Wide,
    drawn,
    pixels,
    softmax,
    tuning,
    unit,
    wide,
)

TEXTS, LOOKS = {"text.photo", "text.art"}, {"visual.photo", "visual.art"}


def config(**set_: Any) -> FedDPTConfig:
    return FedDPTConfig(domains=("photo", "art"), **set_)


def test_slots_stand_in_the_order_of_the_domains() -> None:
    assert config().text_names == ("text.photo", "text.art")
    assert config().visual_names == ("visual.photo", "visual.art")


@pytest.mark.parametrize(
    ("components", "texts", "looks"),
    [("full", TEXTS, LOOKS), ("visual", set(), LOOKS), ("text", {"text.shared"}, set()),
     ("agnostic", {"text.shared"}, LOOKS)],
)  # fmt: skip
def test_each_ablation_has_its_slots(components: Any, texts: set[str], looks: set[str]) -> None:
    made = config(components=components)
    assert set(made.text_names) == texts
    assert set(made.visual_names) == looks


@pytest.mark.parametrize(
    ("set_", "wanted"),
    [
        ({}, {"text.art", *LOOKS}),
        ({"text": "train_all"}, TEXTS | LOOKS),
        ({"visual": "split"}, {"text.art", "visual.art"}),
        ({"visual": "split_ema"}, {"text.art", "visual.art"}),
        ({"components": "text"}, {"text.shared"}),
        ({"components": "agnostic"}, {"text.shared", *LOOKS}),
    ],
)
def test_a_node_trains_its_own_slots_and_those_without_an_owner(
    set_: dict[str, Any], wanted: set[str]
) -> None:
    assert config(**set_).trained("art") == wanted


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


def objective(model: FrozenClip, **set_: Any) -> FedDPTPrompts:
    return FedDPTPrompts(model, tuning(), FedDPTConfig(domains=DOMAINS, **set_))


def weights_by_hand(seen: Any, score: str) -> Wide:
    """Equation 5, head by head."""
    query, keys = wide(seen.query), wide(seen.keys)
    count, heads, width = query.shape
    found = np.zeros((count, len(DOMAINS)))
    for image in range(count):
        for domain in range(len(DOMAINS)):
            pairs = [
                (query[image, head], keys[image % len(keys), head, domain]) for head in range(heads)
            ]
            if score == "scaled":
                found[image, domain] = np.mean([q @ k / np.sqrt(width) for q, k in pairs])
            else:
                q, k = (np.concatenate(one) for one in zip(*pairs, strict=True))
                length = np.linalg.norm(q) * np.linalg.norm(k) if score == "cosine" else 1.0
                found[image, domain] = q @ k / length
    return softmax(found / 0.1)


def parts(one: FedDPTPrompts, model: FrozenClip, prompts: dict[str, Tensor]) -> tuple[Wide, Any]:
    """Return text features [n, classes, D], each slot by itself, and what the images say."""
    tokens = model.text.tokens(CLASSES, 3)
    banks = [wide(model.text.encode(tokens, prompts[f"text.{name}"])) for name in DOMAINS]
    visual = torch.stack([prompts[f"visual.{name}"] for name in DOMAINS])[None]
    return np.stack(banks), model.vision.encode(pixels(), visual)


@pytest.mark.parametrize("score", ["scaled", "cosine", "raw"])
@pytest.mark.parametrize("loss", ["cosine", "ce"])
def test_the_loss_against_float64(model: FrozenClip, score: str, loss: str) -> None:
    one = objective(model, score=score, loss=loss)
    prompts = leaves(drawn(one.initial(1), 7))
    banks, seen = parts(one, model, prompts)
    weights = weights_by_hand(seen, score)
    images, mixed = wide(seen.features), unit(np.einsum("bn,ncd->bcd", weights, banks))
    cosines = np.einsum("bd,bcd->bc", images, mixed)
    own = np.arange(len(LABELS)), LABELS.numpy()
    wanted = -cosines[own].mean()
    if loss == "ce":
        wanted = -np.log(softmax(model.logit_scale * cosines)[own]).mean()
    found = float(first_loss(one, given(prompts, CLASSES), batch(LABELS, images=pixels())))
    assert found == pytest.approx(wanted, rel=1e-4)
    logits = one.classifier(prompts, CLASSES)(Batch(images=pixels()))
    assert np.allclose(wide(logits), model.logit_scale * cosines, atol=1e-4)
    # Without the attention weights it would be another loss.
    flat = unit(banks.mean(axis=0))
    assert abs(wanted - -np.einsum("bd,bd->b", images, flat[LABELS.numpy()]).mean()) > 1e-3


def test_texts_of_classes_that_a_batch_lacks_are_not_encoded(
    model: FrozenClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, names = objective(model), (*CLASSES, "teapot", "anchor")
    prompts = leaves(drawn(one.initial(1), 7))
    wanted = first_loss(one, given(prompts, CLASSES), batch(LABELS, images=pixels()))
    encoded: list[tuple[str, ...]] = []
    encode = model.text.encode

    def noted(tokens: ClassTokens, context: Tensor) -> Tensor:
        encoded.append(tokens.names)
        return encode(tokens, context)

    monkeypatch.setattr(model.text, "encode", noted)
    found = first_loss(one, given(prompts, names), batch(LABELS, images=pixels()))
    assert set(encoded) == {CLASSES}
    assert float(found) == pytest.approx(float(wanted), rel=1e-6)


def test_the_gradient_goes_through_the_weights_into_the_visual_tokens(model: FrozenClip) -> None:
    """Along the gradient, the loss changes as finite differences say."""
    one = objective(model)
    start = drawn(one.initial(1), 7)
    prompts = leaves(start, gradient=True)
    given_batch = batch(LABELS, images=pixels())
    torch.autograd.backward(first_loss(one, given(prompts, CLASSES), given_batch))
    for name in ("visual.art", "text.photo"):
        leaf = prompts[name]
        assert leaf.grad is not None
        direction, step = leaf.grad / leaf.grad.norm(), 3e-3
        values = []
        for sign in (1, -1):
            moved = {**leaves(start), name: leaf.detach() + sign * step * direction}
            values.append(float(first_loss(one, given(moved, CLASSES), given_batch)))
        slope = (values[0] - values[1]) / (2 * step)
        assert slope == pytest.approx(float(leaf.grad.norm()), rel=0.03)


def test_others_prompts_come_in_by_the_moving_average(model: FrozenClip) -> None:
    """Equation 8, three steps from where the last job left it; the loss feels it."""
    one = objective(model, alpha=0.9)
    start, received = drawn(one.initial(1), 7), drawn(one.initial(1), 8)
    own = {"text.photo", *(f"visual.{name}" for name in DOMAINS)}
    prompts = {name: value for name, value in leaves(start).items() if name in own}
    reference = {name: one for name, one in leaves(received).items() if name not in own}
    carry = {MOVED + "text.art": leaves(start)["text.art"]}
    inputs = started(one, given(prompts, CLASSES, reference=reference, carry=carry))
    given_batch = batch(LABELS, images=pixels())
    losses = []
    for _ in range(3):
        losses.append(float(one.loss(given_batch, inputs)))
        one.after_step(inputs)
    expected = np.asarray(start["text.art"], dtype=np.float64)
    for _ in range(3):
        expected = 0.9 * expected + 0.1 * received["text.art"]
    moved = one.carry(inputs)
    assert np.allclose(moved[MOVED + "text.art"].numpy(), expected, atol=1e-6)
    # One that was never heard of before begins as it was received, and stays.
    assert torch.equal(moved[MOVED + "text.sketch"], reference["text.sketch"])
    assert len(set(losses)) == 3
    at_once = objective(model, text="replace")
    inputs = started(at_once, given(prompts, CLASSES, reference=reference, carry=carry))
    assert at_once.carry(inputs) == {}
    assert abs(float(at_once.loss(given_batch, inputs)) - losses[0]) > 1e-5


def test_variants_tune_what_they_say(model: FrozenClip) -> None:
    """Table 5: without text prompts the hand-written text; without visual ones cached features."""
    names = {
        variant: set(objective(model, components=variant).initial(1))
        for variant in ("visual", "text", "agnostic")
    }
    visual = {f"visual.{name}" for name in DOMAINS}
    assert names == {
        "visual": visual,
        "text": {"text.shared"},
        "agnostic": visual | {"text.shared"},
    }
    assert not objective(model, components="text").uses_image_encoder
    agnostic = objective(model, components="agnostic")
    prompts = leaves(drawn(agnostic.initial(1), 7))
    tokens = model.text.tokens(CLASSES, 3)
    visual_stack = torch.stack([prompts[f"visual.{name}"] for name in DOMAINS])[None]
    wanted = (
        model.vision.encode(pixels(), visual_stack).features
        @ model.text.encode(tokens, prompts["text.shared"]).T
    )
    found = agnostic.classifier(prompts, CLASSES)(Batch(images=pixels()))
    assert torch.allclose(found, model.logit_scale * wanted, atol=1e-4)
