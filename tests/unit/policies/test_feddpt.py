"""Fed-DPT: its arrays and who trains them, its exchange, and its objective against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fednode.clip.model import FrozenClip
from fednode.clip.prefix_text import ClassTokens
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Tensors
from fednode.policies.feddpt import MOVED, FedDPT, FedDPTConfig, FedDPTPrompts
from fednode.testing import frame
from tests.unit.learn.jobs import first_loss, given, leaves, started
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    Wide,
    cross_entropy,
    drawn,
    loss_of,
    pixels,
    seen_by,
    shown_by,
    softmax,
    tuning,
    unit,
    wide,
)

DOMAINS = ("photo", "art", "sketch")
TEXTS = {"text.photo", "text.art", "text.sketch"}
LOOKS = {"visual.photo", "visual.art", "visual.sketch"}


def node(**set_: Any) -> FedDPT:
    """Return a node of the domain "photo"."""
    config = FedDPTConfig(domains=DOMAINS, **set_)
    context = frame("feddpt", peers=("b",), rounds=RoundSettings(mode="sync"), domain="photo")
    return FedDPT(config, context)


def begun(policy: FedDPT) -> Round:
    names = (*policy.config.text_names, *policy.config.visual_names)
    held = MethodState(Tensors({name: [0.0, 1.0] for name in names}), Tensors({"momentum": [1.0]}))
    return Round(1, "prompts", held, held)


@pytest.mark.parametrize(
    ("set_", "trained", "others"),
    [
        ({}, {"text.photo", *LOOKS}, {"text.art", "text.sketch"}),
        ({"text": "train_all"}, TEXTS | LOOKS, set()),
        ({"visual": "split"}, {"text.photo", "visual.photo"},
         (TEXTS | LOOKS) - {"text.photo", "visual.photo"}),
        ({"visual": "split_ema"}, {"text.photo", "visual.photo"},
         (TEXTS | LOOKS) - {"text.photo", "visual.photo"}),
        ({"components": "visual"}, LOOKS, set()),
        ({"components": "text"}, {"text.shared"}, set()),
        ({"components": "agnostic"}, {"text.shared", *LOOKS}, set()),
    ],
)  # fmt: skip
def test_a_node_trains_its_own_slots_and_those_without_an_owner(
    set_: dict[str, Any], trained: set[str], others: set[str]
) -> None:
    """Tables 5 and 6; the slots stand in the order of the domains."""
    policy = node(**set_)
    config, job = policy.config, policy.job(begun(policy))
    assert set(job.tensors) == config.trained("photo") == trained
    assert set(job.reference) == others
    for slots in (config.text_names, config.visual_names):
        assert [name.split(".")[1] for name in slots] in ([*DOMAINS], ["shared"], [])
    if not set_:  # a message holds what the node of some domain trains, and nothing else
        every, full = frozenset(TEXTS | LOOKS), frozenset({"text.art", *LOOKS})
        assert policy.complete(full, every)
        assert not policy.complete(full | {"text.photo"}, every)
        assert not policy.complete(full - {"visual.art"}, every)


def test_a_slot_is_the_unweighted_mean_of_its_owners() -> None:
    """Algorithm 1, line 16: whatever number of images the senders report."""
    policy = node()
    now, told = begun(policy), ("text.photo", *LOOKS)
    heard = [
        Contribution(name, Tensors({slot: [value, 0.0] for slot in told}), samples)
        for name, value, samples in (("a", 1.0, 8), ("b", 2.0, 1), ("c", 6.0, 900))
    ]
    merged = policy.merge(now, heard).shared
    assert all(merged[name].tolist() == [3.0, 0.0] for name in told)
    assert merged["text.art"].tolist() == now.held.shared["text.art"].tolist()  # it has no owner


@pytest.mark.parametrize("optimizer", ["keep", "reset"])
def test_the_optimizer_is_kept_or_reset_as_the_setting_says(optimizer: str) -> None:
    policy = node(optimizer=optimizer)
    now = begun(policy)
    heard = [Contribution("b", Tensors({name: [1.0, 1.0] for name in LOOKS}), 8)]
    assert policy.merge(now, heard).carry == (now.held.carry if optimizer == "keep" else Tensors())
    assert policy.job(now).carry == now.held.carry


def objective(model: FrozenClip, **set_: Any) -> FedDPTPrompts:
    return FedDPTPrompts(model, tuning(), FedDPTConfig(domains=DOMAINS, **set_))


def weights_by_hand(seen: Any, score: str) -> Wide:
    """Equation 5, head by head."""
    query, keys = wide(seen.query), wide(seen.keys)
    count, heads, width = query.shape
    found = np.zeros((count, len(DOMAINS)))
    for image in range(count):
        for domain in range(len(DOMAINS)):
            mine = keys[image % len(keys), :, domain]
            pairs = [(query[image, head], mine[head]) for head in range(heads)]
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


@pytest.mark.parametrize(
    ("score", "loss"), [("scaled", "cosine"), ("cosine", "ce"), ("raw", "cosine")]
)
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
        wanted = cross_entropy(model.logit_scale * cosines)
    assert float(loss_of(one, prompts)) == pytest.approx(wanted, rel=1e-4)
    assert np.allclose(shown_by(one, prompts), model.logit_scale * cosines, atol=1e-4)
    # Without the attention weights it would be another loss.
    flat = unit(banks.mean(axis=0))
    assert abs(wanted - -np.einsum("bd,bd->b", images, flat[LABELS.numpy()]).mean()) > 1e-3


def test_texts_of_classes_that_a_batch_lacks_are_not_encoded(
    model: FrozenClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, names = objective(model), (*CLASSES, "teapot", "anchor")
    prompts = leaves(drawn(one.initial(1), 7))
    wanted = loss_of(one, prompts)
    encoded: list[int] = []
    encode = model.text.encode

    def noted(tokens: ClassTokens, context: Tensor) -> Tensor:
        encoded.append(len(tokens.ids))
        return encode(tokens, context)

    monkeypatch.setattr(model.text, "encode", noted)
    found = first_loss(one, given(prompts, names), seen_by(one))
    assert set(encoded) == {len(CLASSES)}
    assert float(found) == pytest.approx(float(wanted), rel=1e-6)


def test_others_prompts_come_in_by_the_moving_average(model: FrozenClip) -> None:
    """Equation 8, three steps from where the last job left it; the loss feels it."""
    one = objective(model, alpha=0.9)
    start, received = drawn(one.initial(1), 7), drawn(one.initial(1), 8)
    own = {"text.photo", *(f"visual.{name}" for name in DOMAINS)}
    prompts = {name: value for name, value in leaves(start).items() if name in own}
    reference = {name: one for name, one in leaves(received).items() if name not in own}
    carry = {MOVED + "text.art": leaves(start)["text.art"]}
    inputs = started(one, given(prompts, CLASSES, reference=reference, carry=carry))
    given_batch = seen_by(one)
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
    for variant, looks in (("visual", True), ("text", False), ("agnostic", True)):
        one = objective(model, components=variant)
        assert set(one.initial(1)) == {*one.config.text_names, *one.config.visual_names}
        assert one.uses_image_encoder == looks
    agnostic = objective(model, components="agnostic")
    prompts = leaves(drawn(agnostic.initial(1), 7))
    tokens = model.text.tokens(CLASSES, 3)
    visual_stack = torch.stack([prompts[f"visual.{name}"] for name in DOMAINS])[None]
    wanted = (
        model.vision.encode(pixels(), visual_stack).features
        @ model.text.encode(tokens, prompts["text.shared"]).T
    )
    assert np.allclose(shown_by(agnostic, prompts), wide(model.logit_scale * wanted), atol=1e-4)
