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
SPOKEN = ("photo", "art painting")


def node(rounds: int = 10, **set_: Any) -> DiPrompT:
    config = DiPrompTConfig(**{"domains": DOMAINS, **set_})
    return DiPrompT(config, frame("diprompt", rounds=RoundSettings(mode="sync", max=rounds)))


def first(policy: DiPrompT, carry: Tensors | None = None) -> Round:
    held = policy.first(Tensors({name: [[1.0, 2.0]] for name in policy.config.names}))
    draft = held if carry is None else replace(held, carry=carry)
    return Round(1, "prompts", held, draft)


def said(sender: str, samples: int, **changes: float) -> Contribution:
    names = {"common": "global", "photo": "domain.photo", "art": "domain.art_painting"}
    tensors = {names.get(key, f"domain.{key}"): [[x, 0.0]] for key, x in changes.items()}
    return Contribution(sender, Tensors(tensors), samples)


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
    raws = {f"raw/domain.{name}" for name in DOMAINS if adds_to == "merged"}
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
        assert set(held.arrays) == {f"sum/domain.{name}" for name in DOMAINS} | raws
        assert not raws or held.arrays["raw/domain.photo"][0, 0] == pytest.approx(raw)
    assert abs(raw - average) > 0.1


@pytest.mark.parametrize(
    ("optimizer", "gone"), [("reset", {"global/exp_avg", "domain.real/exp_avg"}), ("keep", set())]
)
def test_moments_of_replaced_prompts_start_anew(optimizer: str, gone: set[str]) -> None:
    """Those of Q go on, and of prompts that no node changed, even if a name begins with another."""
    policy = node(optimizer=optimizer, domains=("real", "real2"))
    moments = [f"{name}/exp_avg" for name in ("global", "domain.real", "domain.real2", "query")]
    carry = Tensors({key: [1.0] for key in [*moments, "private/query", AVERAGE]})
    merged = policy.merge(first(policy, carry), [said("b", 10, common=1.0, real=1.0)])
    assert set(carry) - set(merged.carry) == gone


def test_a_message_holds_only_what_training_moved_and_the_paper_counts_uploads_alone() -> None:
    policy = node()
    now = first(policy)
    tuned = Tensors({name: [[1.5, 2.0]] for name in now.held.shared})
    report = Report(tensors=tuned, metrics={}, samples=8, changed=("global",))
    told = policy.contribution(now, report)
    assert {name: one.tolist() for name, one in told.tensors.items()} == {"global": [[0.5, 0.0]]}
    assert told.draft == now.draft
    # Figure 5: 4 prompts of 4 x 512 float32 numbers, 5 clients a round, 100 rounds.
    shapes = dict.fromkeys(("global", "domain.a", "domain.b", "domain.c"), (4, 512))
    assert DiPrompT.paper_bytes(policy.config, shapes, 100, 5) == 100 * 5 * 4 * 4 * 512 * 4


def test_runs_without_an_end_are_a_sentence() -> None:
    config = DiPrompTConfig(domains=DOMAINS)
    assert "rounds.max is 0" in DiPrompT.settings_fault(config, RoundSettings(max=0), "")
    assert DiPrompT.settings_fault(config, RoundSettings(max=3), "") == ""
    labels = DiPrompTConfig(domains=DOMAINS, query="labels")
    assert "data.domain is not set" in DiPrompT.settings_fault(labels, RoundSettings(max=3), "")


@pytest.mark.parametrize("beta", [0.2, 1.0, 2.0])
def test_the_weights_are_the_beta_density_up_to_its_constant(beta: float) -> None:
    """After the last round they repeat from the first."""
    rounds, constant = 6, math.gamma(2 * beta) / math.gamma(beta) ** 2
    places = [(index + 0.5) / (rounds + 1) for index in range(rounds + 1)]
    wanted = [constant * (x * (1 - x)) ** (beta - 1) for x in places]
    found = [alpha(index, rounds, beta) for index in range(2 * rounds + 1)]
    wanted += wanted[1:]
    assert [x / found[0] for x in found] == pytest.approx([x / wanted[0] for x in wanted])


# The objective ------------------------------------------------------------------------------------

OFF: dict[str, Any] = {"query_mse": False, "query_kl": False, "query_supervised": 0.0}


def objective(model: FrozenClip, **set_: Any) -> DiPrompTPrompts:
    return DiPrompTPrompts(model, tuning(), DiPrompTConfig(domains=DOMAINS, **set_))


class Hand:
    """Everything that the equations speak of, in float64; texts through open_clip's tokens."""

    def __init__(self, one: DiPrompTPrompts, prompts: dict[str, Tensor]) -> None:
        self.text = text = one.clip.text
        self.scale = one.clip.logit_scale
        self.images = wide(features())
        self.rows = np.arange(len(LABELS))
        self.labels = LABELS.numpy()
        self.common = wide(text.encode(text.tokens(CLASSES, 3), prompts["global"]))
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

    def query(self, query: Tensor) -> Wide:
        names = ([f"{name} with the domain of {said}" for name in CLASSES] for said in SPOKEN)
        return np.stack([wide(self.text.encode(self.text.tokens(x, 4), query)) for x in names])

    def found(self, query: Tensor) -> np.ndarray:
        """Return each image's domain: equation 6's under its true class."""
        joint = np.einsum("bd,mcd->bcm", self.images, self.query(query))
        return np.asarray(joint[self.rows, self.labels].argmax(axis=1))

    def ce(self, texts: Wide, rows: np.ndarray) -> Wide:
        p = softmax(self.scale * self.images[rows] @ texts.T)
        return np.asarray(-np.log(p[np.arange(len(rows)), self.labels[rows]]))

    def contrast(self, m: int) -> float:
        mean = [unit(one.mean(axis=0)) for one in self.domains]
        top = np.exp(mean[m] @ unit(self.written[m].mean(axis=0)))
        return float(-np.log(top / sum(np.exp(mean[m] @ other) for other in mean)))

    def loss(self, which: np.ndarray, contrast: bool = True, weight: float = 1.0) -> float:
        """Return the loss of the global prompt and of each image's domain prompt."""
        losses = []
        for row, m in zip(self.rows, which, strict=True):
            found = float(self.ce(self.domains[m], np.array([row]))[0])
            losses.append(found + (self.contrast(m) if contrast else 0.0))
        return float(self.ce(self.common, self.rows).mean() + weight * np.mean(losses))


def start(one: DiPrompTPrompts) -> dict[str, Tensor]:
    return leaves(Tensors({**drawn(one.initial(1), 7), **drawn(one.private(1), 9, 0.5)}))


@pytest.mark.parametrize("contrast", [True, False])
def test_global_and_domain_losses_against_float64(model: FrozenClip, contrast: bool) -> None:
    one = objective(model, contrast=contrast, domain_weight=0.7, **OFF)
    prompts = start(one)
    hand = Hand(one, prompts)
    which = hand.found(prompts[QUERY])
    assert set(which) == {0, 1}, "the batch should have images of both domains"
    wanted = hand.loss(which, contrast, 0.7)
    assert float(loss_of(one, prompts)) == pytest.approx(wanted, rel=1e-4)


def test_true_domains_may_be_given_instead(model: FrozenClip) -> None:
    """Prompts of other domains have no gradient."""
    one = objective(model, query="labels")
    assert one.private(1) == Tensors()
    prompts = leaves(drawn(one.initial(1), 7), gradient=True)
    wanted = Hand(one, prompts).loss(np.ones(5, dtype=int))
    found = loss_of(one, prompts, job(domain="art_painting"))
    assert float(found.detach()) == pytest.approx(wanted, rel=1e-4)
    torch.autograd.backward(found)
    moved = {name for name, leaf in prompts.items() if leaf.grad is not None}
    assert moved == {"global", "domain.art_painting"}
    # In a batch of both domains, too, the contrast of a domain moves its own prompt alone.
    own, other = (f"domain.{name}" for name in DOMAINS)
    texts = one.prompt_texts(prompts, [own, other], CLASSES)
    leaves_of = [prompts[own], prompts[other]]
    mine, theirs = torch.autograd.grad(
        one.contrast(texts, 0, CLASSES), leaves_of, allow_unused=True
    )
    assert mine.abs().max() > 0
    assert theirs is None or not theirs.any()


def test_the_query_loss_against_float64(model: FrozenClip) -> None:
    """Equation 7 and our own term; each part by itself."""
    one = objective(model)
    prompts = start(one)
    average = 0.3 * prompts[QUERY].flip(0)  # a shift of all numbers alike would be normed away
    carry = {AVERAGE: average, SUM: torch.tensor([1.0])}

    def loss(**set_: Any) -> float:
        return float(loss_of(objective(model, **set_), prompts, carry=carry))

    hand = Hand(one, prompts)
    now, before = hand.query(prompts[QUERY]), hand.query(average)
    mse = np.square(now - before)[:, hand.labels].sum(axis=2).sum(axis=0).mean()
    p, q = (softmax(hand.scale * np.einsum("bd,mcd->mbc", hand.images, x)) for x in (now, before))
    kl = (p * np.log(p / q)).sum(axis=2).sum(axis=0).mean()
    joint = np.einsum("bd,mcd->bcm", hand.images, now).reshape(len(LABELS), -1)
    shares = softmax(hand.scale * joint).reshape(len(LABELS), len(CLASSES), 2)
    own = -np.log(shares[hand.rows, hand.labels].sum(axis=1)).mean()
    parts = {"query_mse": (True, mse), "query_kl": (True, kl), "query_supervised": (2.0, 2 * own)}
    for name, (value, wanted) in parts.items():
        assert wanted > 1e-3
        added = loss(**{**OFF, name: value}) - loss(**OFF)
        assert added == pytest.approx(wanted, rel=2e-3, abs=1e-5)


def test_the_query_takes_its_step_before_it_finds_domains(model: FrozenClip) -> None:
    """Figure 2, steps 3 to 6: the second loss sees the domains of the query after its step."""
    one = objective(model, contrast=False)
    prompts = start(one)
    hand = Hand(one, prompts)
    before = hand.found(prompts[QUERY])
    others = (leaves(drawn(one.private(1), seed, 1.0))[QUERY] for seed in range(200))
    after = next(query for query in others if hand.found(query).tolist() != before.tolist())
    losses = one.losses(seen_by(one), started(one, given(prompts, CLASSES)))
    next(losses)
    prompts[QUERY] = after
    wanted = hand.loss(hand.found(after), contrast=False)
    assert float(next(losses)) == pytest.approx(wanted, rel=1e-4)
    assert next(losses, None) is None


@pytest.mark.parametrize(("weight", "moves"), [(0.0, False), (1.0, True)])
def test_the_query_has_a_loss_of_its_own_and_without_our_term_it_never_moves(
    model: FrozenClip, weight: float, moves: bool
) -> None:
    """Equation 7 and its gradient are zero where Q is its own average."""
    one = objective(model, query_supervised=weight)
    prompts = leaves(Tensors({**one.initial(1), **one.private(1)}), gradient=True)
    moved = []
    for loss in one.losses(seen_by(one), started(one, given(prompts, CLASSES))):
        for leaf in prompts.values():
            leaf.grad = None
        torch.autograd.backward(loss)
        moved.append({name: leaf.grad for name, leaf in prompts.items() if leaf.grad is not None})
    assert set(moved[0]) == {QUERY}
    assert (float(moved[0][QUERY].abs().max()) > 1e-3) == moves
    assert QUERY not in moved[1]
    assert "global" in moved[1]


@pytest.mark.parametrize("length", [2, 4, 9])
def test_the_query_has_its_own_length(model: FrozenClip, length: int) -> None:
    """Its words end at the class whatever its length; 4 vectors are the words themselves."""
    one = objective(model, query_length=length)
    words = model.text.embed_words("a photo of a").float()
    query = one.query_start()
    assert query.shape == one.private(1)[QUERY].shape == (length, words.shape[1])
    for at in range(1, length + 1):
        assert torch.equal(query[-at], words[-1 - (at - 1) % 4])
    assert np.isfinite(float(loss_of(one, start(one))))


@pytest.mark.parametrize("ensemble", ["dynamic", "top"])
def test_predictions_are_equation_8(model: FrozenClip, ensemble: str) -> None:
    one = objective(model, ensemble=ensemble)
    prompts = start(one)
    hand = Hand(one, prompts)
    best = np.einsum("bd,mcd->bmc", hand.images, hand.domains).max(axis=2)
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
