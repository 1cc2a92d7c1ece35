"""TRIP against float64: keys, clusters, weights, loss, moving average; counts as published."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import open_clip
import pytest
import torch

from fednode.clip.backbone import ENSEMBLE, Backbone
from fednode.core.events import RoundDue
from fednode.core.rounds.kind import MethodPolicy
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Report, Tensors
from fednode.errors import ConfigError
from fednode.learn.objective import Batch
from fednode.policies.trip import routing
from fednode.policies.trip.config import TRIPConfig
from fednode.policies.trip.exchange import TRIP as Exchange
from fednode.policies.trip.objective import Objective as TRIP
from tests.unit.core.rounds.staged import context, heard, job, trained, up
from tests.unit.learn.jobs import batch, given, leaves
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    Wide,
    drawn,
    features,
    pixels,
    softmax,
    tuning,
    unit,
    wide,
)


def tokens(seed: int, count: int = 23, width: int = 6) -> Wide:
    """Return tokens in three heaps, so that clusters overflow."""
    draw = np.random.default_rng(seed)
    heaps = 4.0 * draw.standard_normal((3, width))
    return np.asarray(heaps[draw.integers(0, 3, count)] + draw.standard_normal((count, width)))


def by_hand(x: Wide, known: Wide, factor: float, draw: np.random.Generator) -> list[float]:
    """Return the weights by the released code's steps, token by token, with another matching."""
    count = len(known)
    room = [int(len(x) // count * factor) + (k < len(x) % count) for k in range(count)]
    centres = [x[at].copy() for at in draw.permutation(len(x))[:count]]
    prices, sizes = [0.0] * count, [0] * count
    for _ in range(100):
        costs = []
        for at, one in enumerate(x):
            each = [math.dist(one, c) + p for c, p in zip(centres, prices, strict=True)]
            costs.append((min(each), at, each.index(min(each))))
        held: list[list[int]] = [[] for _ in range(count)]
        for _cost, at, k in sorted(costs):
            if len(held[k]) < room[k]:
                held[k].append(at)
        fresh = []
        for k, mine in enumerate(held):
            sizes[k] = len(mine)
            prices[k] += 1e-4 * (len(mine) - room[k])
            if mine:
                fresh.append(sum(x[at] for at in mine) / len(mine))
            else:
                far = [min(math.dist(one, c) for c in centres) for one in x]
                fresh.append(x[far.index(max(far))])
                prices[k] = 0.0
        if sum(map(math.dist, fresh, centres)) / count < 1e-4:
            break
        centres = fresh
    cosines = unit(np.array(centres)) @ unit(known).T
    scores = {
        order: sum(cosines[k, order[k]] for k in range(count))
        for order in permutations(range(count))
    }
    best = max(scores, key=lambda order: scores[order])
    found = [0.0] * count
    for k in range(count):
        found[best[k]] = sizes[k] / sum(sizes)
    return found


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_weights_are_the_published_ones(count: int, factor: float) -> None:
    known = routing.keys(3, count, 6)
    dropped = 0
    for seed in range(3):
        x = tokens(seed)
        draws = [np.random.default_rng(seed) for _ in range(2)]
        found = routing.weights(x, known, factor, draws[0])
        assert found.tolist() == pytest.approx(by_hand(x, known, factor, draws[1]))
        assert float(found.sum()) == pytest.approx(1.0)
        room = routing.capacities(len(x), count, factor)
        _, sizes = routing.clustered(x, room, np.random.default_rng(seed))
        assert (sizes <= room).all()
        dropped += int(sizes.sum() < len(x))
    if factor < 1 or (factor == 1 and count > 1):
        assert dropped, "no cluster was full"


def test_capacities_are_equal_shares_and_the_first_take_the_rest() -> None:
    assert routing.capacities(197, 4, 1.0).tolist() == [50, 49, 49, 49]
    assert routing.capacities(197, 4, 2.0).tolist() == [99, 98, 98, 98]
    assert routing.capacities(197, 8, 1.0).tolist() == [25, 25, 25, 25, 25, 24, 24, 24]


def test_keys_are_orthonormal_and_of_their_seed() -> None:
    known = routing.keys(5, 4, 32)
    assert np.allclose(known @ known.T, np.eye(4), atol=1e-12)
    assert np.array_equal(known, routing.keys(5, 4, 32))
    assert not np.allclose(known, routing.keys(6, 4, 32))
    # The signs do not depend on the library: a key has a positive product with its own draw.
    drawn_first = np.random.default_rng(5).standard_normal((32, 4))[:, 0]
    assert known[0] @ drawn_first > 0


def test_an_image_s_weights_do_not_depend_on_its_place() -> None:
    known = routing.keys(0, 3, 6)
    states = np.stack([tokens(seed) for seed in range(4)]).astype(np.float32)
    found = routing.routed(states, known, (1.0, 2.0))
    assert found.shape == (4, 2, 3)
    assert np.array_equal(found[::-1], routing.routed(states[::-1], known, (1.0, 2.0)))
    assert np.allclose(found.sum(axis=2), 1.0)


@pytest.mark.parametrize("teacher", ["template", "ensemble"])
@pytest.mark.parametrize("teach", [0.0, 0.6])
def test_loss_and_logits_against_float64(
    model: Backbone, teacher: Any, teach: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [one("{}") for one in open_clip.OPENAI_IMAGENET_TEMPLATES] == list(ENSEMBLE)
    few = ENSEMBLE[5:8]  # eighty take seconds
    monkeypatch.setattr("fednode.policies.trip.objective.ENSEMBLE", few)
    config = TRIPConfig(experts=2, teach=teach, teacher=teacher)
    one = TRIP(model, tuning(template="a sketch of a {}."), config)
    assert one.constant is not None
    known = one.constant.of(pixels())
    assert known.shape == (5, *one.constant.shape)
    assert not torch.equal(known[:, 0], known[:, 1])
    start = drawn(one.initial(1), 3)
    prompts = leaves(start, gradient=True)
    classes = model.text.tokens(CLASSES, 3)

    def logits(place: int) -> Wide:
        found = np.zeros((5, 3))
        for at in range(5):
            mixed = sum(
                wide(known)[at, place, e] * start["experts"][e].astype(np.float64) for e in range(2)
            )
            texts = wide(model.text.encode(classes, torch.tensor(mixed).float()))
            found[at] = model.logit_scale * texts @ wide(features())[at]
        return found

    images = {"features": features(), "constants": known}
    shown = one.classifier(prompts, CLASSES)(Batch(**images))
    assert np.allclose(wide(shown), logits(1), atol=1e-3)
    written = ["a sketch of a {}."]
    if teacher == "ensemble":
        written = list(few)
    texts = [wide(model.text.encode(model.text.texts(CLASSES, each))) for each in written]
    p0 = softmax(model.logit_scale * wide(features()) @ unit(np.mean(texts, axis=0)).T)
    log_p = np.log(softmax(logits(0)))
    wanted = -log_p[np.arange(5), LABELS.numpy()].mean() - teach * (p0 * log_p).sum(axis=1).mean()
    loss = one.begin(given(prompts, CLASSES)).loss(batch(LABELS, **images))
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-3)
    torch.autograd.backward(loss)
    assert prompts["experts"].grad is not None
    assert float(prompts["experts"].grad.abs().amax(dim=(1, 2)).min()) > 0


def test_the_tokens_are_open_clip_s_after_the_last_block(model: Backbone) -> None:
    visual = model.model.visual
    with torch.no_grad():
        wanted = visual.transformer(visual._embeds(pixels()))
    assert torch.allclose(model.vision.states(pixels()), wanted, atol=1e-5)


def test_experts_start_apart(model: Backbone) -> None:
    """The released code's experts share one storage, and so one start."""
    found = TRIP(model, tuning(), TRIPConfig(experts=3)).initial(1)["experts"]
    assert found.shape == (3, 3, 32)
    assert not np.array_equal(found[0], found[1])
    words = TRIP(model, tuning(init_words="a photo of", init_std=0.01), TRIPConfig(experts=2))
    near = words.initial(1)["experts"] - wide(model.text.embed_words("a photo of"))
    assert 0 < float(np.abs(near).max()) < 0.1


def test_more_experts_than_tokens_are_a_sentence(model: Backbone) -> None:
    with pytest.raises(ConfigError, match=r"policy.experts is 8, .* 5 tokens an image"):
        TRIP(model, tuning(), TRIPConfig(experts=8))


# The exchange -------------------------------------------------------------------------------------

START = Tensors({"experts": np.ones((2, 1, 2))})


def method(**config: Any) -> Exchange:
    return Exchange(TRIPConfig(weights="equal", **config), context("trip", max=3))


def told(sender: str, value: float) -> Contribution:
    return Contribution(sender, Tensors({"experts": np.full((2, 1, 2), value)}), 8)


def test_the_average_is_the_weighted_one_of_all_means() -> None:
    one, means = method(), (3.0, 5.0, 4.0)
    state = one.first(START)
    density = [((r + 0.5) / 4 * (1 - (r + 0.5) / 4)) ** (0.2 - 1.0) for r in range(4)]
    for number, value in enumerate(means, 1):
        now = Round(number, "prompts", state, state)
        tune = one.job(now)
        assert tune is not None
        assert tune.tensors["experts"] == pytest.approx(means[number - 2] if number > 1 else 1.0)
        state = one.merge(now, (told("a", value - 1.0), told("b", value + 1.0)))
        held = [1.0, *means[:number]]
        wanted = np.average(held, weights=density[: number + 1])
        assert state.shared["experts"] == pytest.approx(wanted, rel=1e-5)
        assert state.arrays["raw/experts"] == pytest.approx(value)
    assert one.merge(Round(4, "prompts", state, state), ()) == state, "no contribution, no weight"


def test_a_node_uses_the_average_and_tunes_the_mean() -> None:
    policy = up(MethodPolicy(Exchange).start(TRIPConfig(), context("trip", max=3), START))
    effects = trained(policy, policy.handle(0.0, RoundDue(1)), by=2.0)
    said = Tensors({"experts": np.full((2, 1, 2), 3.0)})
    measured = job(heard(policy, effects, {"b": said, "c": said})).job
    used = float(measured.tensors["experts"][0, 0, 0])
    assert 1.0 < used < 3.0, "between the start and the mean"
    assert np.array_equal(policy.now.draft.arrays["raw/experts"], said["experts"])


@pytest.mark.parametrize("average", [True, False])
def test_in_int8_changes_of_the_mean_are_sent(average: bool) -> None:
    one = method(average=average, wire_dtype="int8")
    state = one.using(one.first(START), Tensors({"experts": np.full((2, 1, 2), 4.0)}))
    state = one.merge(Round(1, "prompts", state, state), (told("a", 2.0),))  # 4 + 2
    now = Round(2, "prompts", state, state)
    report = Report(tensors=Tensors({"experts": np.full((2, 1, 2), 7.0)}), metrics={}, samples=8)
    sent = one.contribution(now, report)
    assert sent.tensors["experts"] == pytest.approx(1.0)
    assert sent.draft.shared == state.shared


def test_a_rollback_sets_prompts_and_average() -> None:
    one = method()
    back = one.using(one.first(START), Tensors({"experts": np.full((2, 1, 2), 9.0)}))
    assert back.shared["experts"].max() == 9.0
    assert back.arrays["raw/experts"].min() == 9.0


def test_without_the_average_it_is_plain_averaging() -> None:
    one = method(average=False)
    state = one.first(START)
    assert state == MethodState(START)
    merged = one.merge(Round(1, "prompts", state, state), (told("a", 2.0), told("b", 4.0)))
    assert merged.shared == Tensors({"experts": np.full((2, 1, 2), 3.0)})
    assert not merged.arrays


def test_an_average_needs_an_end() -> None:
    assert "rounds.max is 0" in Exchange.settings_fault(TRIPConfig(), RoundSettings(max=0), "")
    assert not Exchange.settings_fault(TRIPConfig(average=False), RoundSettings(max=0), "")


@pytest.mark.parametrize(("experts", "length", "count"), [(4, 32, 65_536), (2, 1, 1_024)])
def test_counts_and_defaults_are_as_published(
    experts: int, length: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ViT-B/16: 0.065 M numbers, and 0.001 M for TRIP-Lite; METHODS section 9.3."""

    class Sizes:
        class text:
            width = 512

        class vision:
            width, length = 768, 197

    monkeypatch.setattr("fednode.learn.texts.ClassTexts.__init__", lambda self, backbone: None)
    config = TRIPConfig(experts=experts)
    one = TRIP(Sizes, tuning(context_length=length), config)  # type: ignore[arg-type]
    assert math.prod(one.initial(1).shapes["experts"]) == count
    assert TRIPConfig().experts * Exchange.tuning["context_length"] == 128  # type: ignore[operator]
    assert (config.capacity_train, config.capacity_test, config.teach) == (1.0, 2.0, 1.0)


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"experts": 9}, "policy.experts is 9; it must be from 1 to 8"),
        ({"capacity_train": 0.0}, "policy.capacity_train is 0; it must be above 0"),
        ({"teach": -1.0}, "policy.teach is -1"),
        ({"beta": 0.0}, "policy.beta is 0; it must be above 0"),
    ],
)
def test_settings_out_of_range_are_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TRIPConfig(**set_)
