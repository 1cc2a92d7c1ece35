"""DiPrompT: its exchange, its moving average against the Beta density, and its objective."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fednode.clip.model import FrozenClip
from fednode.core.rounds.method import Contribution, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Report, Tensors
from fednode.policies.diprompt import (
    AVERAGE,
    QUERY,
    SUM,
    DiPrompT,
    DiPrompTConfig,
    DiPrompTPrompts,
    alpha,
)
from fednode.testing import frame
from tests.unit.learn.jobs import given, job, leaves, started
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    Wide,
    drawn,
    features,
    loss_of,
    seen_by,
    shown_by,
    softmax,
    tuning,
    unit,
    wide,
)

DOMAINS = ("photo", "art_painting")


def node(rounds: int = 10, **set_: Any) -> DiPrompT:
    config = DiPrompTConfig(domains=DOMAINS, **set_)
    return DiPrompT(config, frame("diprompt", rounds=RoundSettings(mode="sync", max=rounds)))


def first(policy: DiPrompT) -> Round:
    held = policy.first(Tensors({name: [[1.0, 2.0]] for name in policy.config.names}))
    return Round(1, "prompts", held, held)


def said(sender: str, samples: int, **changes: float) -> Contribution:
    names = {"common": "global", "photo": "domain.photo", "art": "domain.art_painting"}
    tensors = Tensors({names[key]: [[value, 0.0]] for key, value in changes.items()})
    return Contribution(sender, tensors, samples)


def test_changes_are_merged_by_who_changed_what() -> None:
    """Equation 4: weights are of those that changed a prompt; nobody leaves it as it is."""
    policy = node(momentum=False)
    heard = [said("a", 10, common=1.0, photo=3.0), said("b", 30, common=2.0), said("c", 99)]
    merged = policy.merge(first(policy), heard).shared
    assert merged["global"][0].tolist() == [1.0 + (10 * 1 + 30 * 2) / 40, 2.0]
    assert merged["domain.photo"][0].tolist() == [4.0, 2.0]
    assert merged["domain.art_painting"][0].tolist() == [1.0, 2.0]
    heard = [said("a", 10, common=1.0), said("b", 10**9, common=2.0), said("c", 10, common=1.0)]
    bounded = policy.merge(first(policy), heard).shared  # b weighs ten times the median
    wanted = 1.0 + (10 * 1 + 100 * 2 + 10 * 1) / 120
    assert float(bounded["global"][0, 0]) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("adds_to", ["merged", "sent"])
def test_domain_prompts_are_averaged_over_rounds(adds_to: str) -> None:
    """Equation 5; a round in which nobody changed a prompt does not count.

    In the other reading of equations 4 and 5, V is the average plus the change; nothing is kept.
    """
    policy = node(rounds=5, adds_to=adds_to)
    raw = average = 1.0
    weight, now = alpha(0, 5, 0.2), first(policy)
    sums, raws = {"sum/domain.photo", "sum/domain.art_painting"}, set[str]()
    if adds_to == "merged":
        raws = {"raw/domain.photo", "raw/domain.art_painting"}
    for number, change in ((1, 0.5), (2, None), (3, -2.0), (4, 4.0)):
        heard = [said("a", 10, photo=change)] if change is not None else [said("a", 10)]
        held = policy.merge(replace(now, number=number), heard)
        now = replace(now, held=held, draft=held)
        if change is not None:
            raw = (raw if raws else average) + change
            step = alpha(number, 5, 0.2)
            average = (weight * average + step * raw) / (weight + step)
            weight += step
        assert held.shared["domain.photo"][0, 0] == pytest.approx(average, rel=1e-6)
        assert set(held.arrays) == sums | raws
        assert not raws or held.arrays["raw/domain.photo"][0, 0] == pytest.approx(raw)
    assert abs(raw - average) > 0.1


@pytest.mark.parametrize("optimizer", ["reset", "keep"])
def test_moments_of_replaced_prompts_start_anew(optimizer: str) -> None:
    """Those of Q, and of a prompt that no node changed, go on."""
    policy = node(optimizer=optimizer)
    names = ("global", "domain.photo", "domain.art_painting", "query")
    carry = Tensors({f"{name}/exp_avg": [1.0] for name in names})
    carry = Tensors({**carry, "private/query": [2.0], AVERAGE: [3.0]})
    now = first(policy)
    now = replace(now, draft=replace(now.draft, carry=carry))
    merged = policy.merge(now, [said("b", 10, common=1.0, photo=1.0)])
    gone = {"global/exp_avg", "domain.photo/exp_avg"} if optimizer == "reset" else set()
    assert set(carry) - set(merged.carry) == gone


def test_its_paper_counts_uploads_alone() -> None:
    """Figure 5: 4 prompts of 4 x 512 float32 numbers, 5 clients a round, 100 rounds."""
    shapes = dict.fromkeys(("global", "domain.a", "domain.b", "domain.c"), (4, 512))
    assert DiPrompT.paper_bytes(DiPrompTConfig(domains=DOMAINS), shapes, 100, 5) == (
        100 * 5 * 4 * 4 * 512 * 4
    )


def test_a_message_holds_only_what_training_moved() -> None:
    policy = node()
    now = first(policy)
    tuned = Tensors({name: [[1.5, 2.0]] for name in now.held.shared})
    told = policy.contribution(
        now, Report(tensors=tuned, metrics={}, samples=8, changed=("global",))
    )
    assert {name: one.tolist() for name, one in told.tensors.items()} == {"global": [[0.5, 0.0]]}
    assert told.draft == now.draft


def test_runs_without_an_end_are_a_sentence() -> None:
    config = DiPrompTConfig(domains=DOMAINS)
    assert "rounds.max is 0" in DiPrompT.settings_fault(config, RoundSettings(max=0), "")
    assert DiPrompT.settings_fault(config, RoundSettings(max=3), "") == ""
    labels = DiPrompTConfig(domains=DOMAINS, query="labels")
    assert "data.domain is not set" in DiPrompT.settings_fault(labels, RoundSettings(max=3), "")


def test_a_domain_whose_name_begins_with_another_s_keeps_its_moments() -> None:
    policy = DiPrompT(
        DiPrompTConfig(domains=("real", "real2"), optimizer="reset"),
        frame("diprompt", rounds=RoundSettings(mode="sync", max=9)),
    )
    now = first(policy)
    carry = Tensors({"domain.real/exp_avg": [1.0], "domain.real2/exp_avg": [1.0]})
    now = replace(now, draft=replace(now.draft, carry=carry))
    change = Contribution("b", Tensors({"domain.real": [[1.0, 0.0]]}), 10)
    assert set(policy.merge(now, [change]).carry) == {"domain.real2/exp_avg"}


def density(x: float, beta: float) -> float:
    constant = math.gamma(2 * beta) / math.gamma(beta) ** 2
    return float(constant * x ** (beta - 1) * (1 - x) ** (beta - 1))


@pytest.mark.parametrize("beta", [0.2, 0.5, 1.0, 2.0])
def test_the_weights_are_the_beta_density_up_to_its_constant(beta: float) -> None:
    rounds = 6
    wanted = [density((index + 0.5) / (rounds + 1), beta) for index in range(rounds + 1)]
    found = [alpha(index, rounds, beta) for index in range(rounds + 1)]
    assert [x / found[0] for x in found] == pytest.approx([x / wanted[0] for x in wanted])


def test_after_the_last_round_the_weights_repeat_from_the_first_round() -> None:
    assert [alpha(index, 3, 0.5) for index in (4, 5, 6, 7)] == [
        alpha(index, 3, 0.5) for index in (1, 2, 3, 1)
    ]


SPOKEN = ("photo", "art painting")


def objective(model: FrozenClip, **set_: Any) -> DiPrompTPrompts:
    return DiPrompTPrompts(model, tuning(), DiPrompTConfig(domains=DOMAINS, **set_))


class Hand:
    """Everything that the equations speak of, in float64; texts through open_clip's tokens."""

    def __init__(self, one: DiPrompTPrompts, prompts: dict[str, Tensor]) -> None:
        text = one.clip.text
        self.scale = one.clip.logit_scale
        self.images = wide(features())
        self.rows = np.arange(len(LABELS))
        self.labels = LABELS.numpy()
        learned = text.tokens(CLASSES, 3)
        self.common = wide(text.encode(learned, prompts["global"]))
        self.domains = np.stack(
            [
                wide(text.encode(text.tokens(CLASSES, 3, (said,)), prompts[f"domain.{name}"]))
                for name, said in zip(DOMAINS, SPOKEN, strict=True)
            ]
        )
        self.written = [
            wide(text.encode(text.texts(CLASSES, f"a photo of a {{}} with the domain of {said}.")))
            for said in SPOKEN
        ]

    def query(self, one: DiPrompTPrompts, query: Tensor) -> Wide:
        text = one.clip.text
        names = ([f"{name} with the domain of {said}" for name in CLASSES] for said in SPOKEN)
        return np.stack([wide(text.encode(text.tokens(each, 4), query)) for each in names])

    def ce(self, texts: Wide, rows: np.ndarray) -> Wide:
        p = softmax(self.scale * self.images[rows] @ texts.T)
        return np.asarray(-np.log(p[np.arange(len(rows)), self.labels[rows]]))

    def contrast(self, m: int) -> float:
        mean = [unit(one.mean(axis=0)) for one in self.domains]
        top = np.exp(mean[m] @ unit(self.written[m].mean(axis=0)))
        return float(-np.log(top / sum(np.exp(mean[m] @ other) for other in mean)))

    def domain_loss(self, which: np.ndarray, contrast: bool = True) -> float:
        losses = []
        for row, m in zip(self.rows, which, strict=True):
            found = float(self.ce(self.domains[m], np.array([row]))[0])
            losses.append(found + (self.contrast(m) if contrast else 0.0))
        return float(np.mean(losses))


def start(one: DiPrompTPrompts) -> dict[str, Tensor]:
    return leaves(Tensors({**drawn(one.initial(1), 7), **drawn(one.private(1), 9, 0.5)}))


@pytest.mark.parametrize("contrast", [True, False])
def test_global_and_domain_losses_against_float64(model: FrozenClip, contrast: bool) -> None:
    """The domain of an image is equation 6's under its true class."""
    one = objective(
        model, contrast=contrast, query_mse=False, query_kl=False, query_supervised=0.0,
        domain_weight=0.7,
    )  # fmt: skip
    prompts = start(one)
    hand = Hand(one, prompts)
    asked = hand.query(one, prompts[QUERY])
    joint = np.einsum("bd,mcd->bcm", hand.images, asked)
    which = joint[hand.rows, hand.labels].argmax(axis=1)
    assert set(which) == {0, 1}, "the batch should have images of both domains"
    wanted = hand.ce(hand.common, hand.rows).mean() + 0.7 * hand.domain_loss(which, contrast)
    assert float(loss_of(one, prompts)) == pytest.approx(wanted, rel=1e-4)


def test_true_domains_may_be_given_instead(model: FrozenClip) -> None:
    one = objective(model, query="labels")
    assert one.private(1) == Tensors()
    prompts = start(one)
    hand = Hand(one, prompts)
    wanted = hand.ce(hand.common, hand.rows).mean() + hand.domain_loss(np.ones(5, dtype=int))
    found = loss_of(one, prompts, job(domain="art_painting"))
    assert float(found) == pytest.approx(wanted, rel=1e-4)


def test_the_query_loss_against_float64(model: FrozenClip) -> None:
    """Equation 7 and our own term; each part by itself."""
    prompts = start(objective(model))
    average = 0.3 * prompts[QUERY].flip(0)  # a shift of all numbers alike would be normed away
    carry = {AVERAGE: average, SUM: torch.tensor([1.0])}

    def loss(**set_: Any) -> float:
        one = objective(model, **set_)
        return float(loss_of(one, prompts, carry=carry))

    none = {"query_mse": False, "query_kl": False, "query_supervised": 0.0}
    one = objective(model)
    hand = Hand(one, prompts)
    now, before = hand.query(one, prompts[QUERY]), hand.query(one, average)
    mse = np.square(now - before)[:, hand.labels].sum(axis=2).sum(axis=0).mean()
    p, q = (
        softmax(hand.scale * np.einsum("bd,mcd->mbc", hand.images, one)) for one in (now, before)
    )
    kl = (p * np.log(p / q)).sum(axis=2).sum(axis=0).mean()
    joint = softmax(
        hand.scale * np.einsum("bd,mcd->bcm", hand.images, now).reshape(len(LABELS), -1)
    ).reshape(len(LABELS), len(CLASSES), 2)
    own = -np.log(joint[hand.rows, hand.labels].sum(axis=1)).mean()
    bare = loss(**none)
    parts = {"query_mse": (True, mse), "query_kl": (True, kl), "query_supervised": (2.0, 2 * own)}
    for name, (value, wanted) in parts.items():
        assert wanted > 1e-3
        assert loss(**{**none, name: value}) - bare == pytest.approx(wanted, rel=2e-3, abs=1e-5)


def test_the_query_takes_its_step_before_it_finds_domains(model: FrozenClip) -> None:
    """Figure 2, steps 3 to 6: the second loss sees the domains of the query after its step."""
    one = objective(model, contrast=False)
    prompts = start(one)
    hand = Hand(one, prompts)

    def domains(query: Tensor) -> np.ndarray:
        joint = np.einsum("bd,mcd->bcm", hand.images, hand.query(one, query))
        return np.asarray(joint[hand.rows, hand.labels].argmax(axis=1))

    before = domains(prompts[QUERY])
    others = (leaves(drawn(one.private(1), seed, 1.0))[QUERY] for seed in range(200))
    after = next(query for query in others if domains(query).tolist() != before.tolist())
    inputs = started(one, given(prompts, CLASSES))
    losses = one.losses(seen_by(one), inputs)
    next(losses)
    prompts[QUERY] = after
    second = float(next(losses))
    wanted = hand.ce(hand.common, hand.rows).mean() + hand.domain_loss(
        domains(after), contrast=False
    )
    assert second == pytest.approx(wanted, rel=1e-4)
    assert next(losses, None) is None


def test_the_two_losses_are_of_different_prompts(model: FrozenClip) -> None:
    one = objective(model)
    prompts = leaves(Tensors({**one.initial(1), **one.private(1)}), gradient=True)
    inputs = started(one, given(prompts, CLASSES))
    losses = one.losses(seen_by(one), inputs)
    moved = []
    for loss in losses:
        for leaf in prompts.values():
            leaf.grad = None
        torch.autograd.backward(loss)
        moved.append({name for name, leaf in prompts.items() if leaf.grad is not None})
    assert moved[0] == {QUERY}
    assert QUERY not in moved[1]
    assert "global" in moved[1]


@pytest.mark.parametrize("length", [1, 2, 4, 6, 9])
def test_the_query_has_its_own_length(model: FrozenClip, length: int) -> None:
    """Its words end at the class whatever its length; 4 vectors are the words themselves."""
    one = objective(model, query_length=length)
    words = model.text.embed_words("a photo of a").float()
    query = one.query_start()
    assert query.shape == (length, words.shape[1])
    for at in range(1, length + 1):
        assert torch.equal(query[-at], words[-1 - (at - 1) % 4])
    assert one.private(1)[QUERY].shape == query.shape
    prompts = start(one)
    assert np.isfinite(float(loss_of(one, prompts)))


def test_without_our_term_the_query_would_never_move(model: FrozenClip) -> None:
    """Equation 7 and its gradient are zero where Q is its own average."""
    for weight, moves in ((0.0, False), (1.0, True)):
        one = objective(model, query_supervised=weight)
        tensors = Tensors({**one.initial(1), **one.private(1)})
        prompts = leaves(tensors, gradient=True)
        torch.autograd.backward(loss_of(one, prompts))
        gradient = prompts[QUERY].grad
        assert gradient is not None
        assert (float(gradient.abs().max()) > 1e-3) == moves


def test_only_prompts_of_domains_that_were_found_have_a_gradient(model: FrozenClip) -> None:
    one = objective(model, query="labels")
    prompts = leaves(drawn(one.initial(1), 7), gradient=True)
    torch.autograd.backward(loss_of(one, prompts, job(domain="photo")))
    moved = {name for name, leaf in prompts.items() if leaf.grad is not None}
    assert moved == {"global", "domain.photo"}


@pytest.mark.parametrize("ensemble", ["dynamic", "top"])
def test_predictions_are_equation_8(model: FrozenClip, ensemble: str) -> None:
    one = objective(model, ensemble=ensemble)
    prompts = start(one)
    hand = Hand(one, prompts)
    cosines = np.einsum("bd,mcd->bmc", hand.images, hand.domains)
    best = cosines.max(axis=2)
    weights = best / best.sum(axis=1, keepdims=True)
    if ensemble == "top":
        weights = np.eye(2)[best.argmax(axis=1)]
    mixed = np.einsum("bm,mcd->bcd", weights, hand.domains) + hand.common
    wanted = hand.scale * np.einsum("bd,bcd->bc", hand.images, unit(mixed))
    assert np.allclose(shown_by(one, prompts), wanted, atol=1e-3)


def test_the_average_of_the_query_is_carried(model: FrozenClip) -> None:
    one = objective(model)
    prompts = start(one)
    carried = one.carry(started(one, given(prompts, CLASSES, job(round=2, rounds=10))))
    before, step = alpha(0, 10, 0.2), alpha(2, 10, 0.2)
    wanted = (before * one.query_start() + step * prompts[QUERY]) / (before + step)
    assert torch.allclose(carried[AVERAGE], wanted, atol=1e-6)
    assert float(carried[SUM]) == pytest.approx(before + step)
