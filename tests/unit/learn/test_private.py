"""Clipping, noise and the account of it: against closed forms, and through a crash."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from node.commands.plan import make, private
from node.core.policy import start_seed
from node.core.types import MEASURE, Job, Tensors
from node.errors import StateError
from node.learn.closed_form import ClosedFormLearner
from node.learn.private import (
    ACCOUNT,
    PrivateLearner,
    blurred,
    epsilon,
    read_account,
    said,
)
from node.learn.settings import PrivacySettings

INITIAL = Tensors({"a": np.ones(3), "b": np.zeros((2, 2))})
NO_NOISE = 1e-12


def chance() -> np.random.Generator:
    return np.random.default_rng(5)


def test_a_short_change_passes_and_a_long_one_is_shortened_over_all_arrays() -> None:
    trained = Tensors({"a": [4.0, 1.0, 1.0], "b": [[4.0, 0.0], [0.0, 0.0]]})  # a change of norm 5
    same = blurred(trained, INITIAL, 10.0, NO_NOISE, chance())
    np.testing.assert_allclose(same["a"], trained["a"], rtol=1e-6)
    half = blurred(trained, INITIAL, 2.5, NO_NOISE, chance())
    np.testing.assert_allclose(half["a"], [2.5, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(half["b"][0], [2.0, 0.0], rtol=1e-6, atol=1e-9)
    assert blurred(INITIAL, INITIAL, 1.0, NO_NOISE, chance()).finite()


def test_noise_is_gaussian_of_so_many_clips() -> None:
    wide = Tensors({"x": np.zeros(200_000)})
    drawn = blurred(wide, wide, 2.0, 1.5, chance())["x"]
    assert float(drawn.std()) == pytest.approx(3.0, rel=0.01)
    assert abs(float(drawn.mean())) < 0.03
    assert blurred(wide, wide, 2.0, 1.5, np.random.default_rng()) != Tensors({"x": drawn})


@pytest.mark.parametrize("noise", [2.0, 10.0, 50.0])
@pytest.mark.parametrize("releases", [1, 30, 1000])
def test_epsilon_bounds_the_exact_one_of_composed_gaussians(noise: float, releases: int) -> None:
    """delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) (Dong, Roth, Su 2022)."""
    mu, delta, normal = math.sqrt(releases) / (noise / 2.0), 1e-5, NormalDist()
    found = epsilon(noise, releases, delta)

    def exact(value: float) -> float:
        first = normal.cdf(-value / mu + mu / 2)
        # Far out the product is of a huge and a tiny number.
        tail = normal.cdf(-value / mu - mu / 2)
        return first - (math.exp(value) * tail if tail > 0 else 0.0)

    if found < 500:
        assert exact(found) <= delta * 1.001
        assert exact(found * 0.6) > delta  # and it is no idle bound


def test_nothing_released_costs_nothing() -> None:
    assert epsilon(1.0, 0, 1e-5) == 0.0


def made(folder: Path, **settings: float) -> PrivateLearner:
    given = PrivacySettings(**{"clip": 0.5, "noise": 0.1, **settings})
    return PrivateLearner(ClosedFormLearner("a"), given, 1, folder, chance())


def job(learner: PrivateLearner, stage: str = "prompts", measure: bool = True) -> Job:
    return Job(1, stage, learner.initial(1), 7, measure=measure)


def test_what_comes_out_is_near_the_start_and_its_figures_are_its_own(tmp_path: Path) -> None:
    learner = made(tmp_path, noise=NO_NOISE)
    report = learner.tune(job(learner), lambda: False, lambda _: None)
    change = report.tensors["context"] - learner.initial(1)["context"]
    assert float(np.linalg.norm(change)) == pytest.approx(0.5, rel=1e-5)
    expected = learner.evaluate(report.tensors, lambda: False)["own"]
    assert report.metrics["own"] == pytest.approx(expected)


def test_releases_are_counted_on_disk_before_they_are_made(tmp_path: Path) -> None:
    learner = made(tmp_path)
    for number in (1, 2, 3):
        learner.tune(job(learner, measure=number == 2), lambda: False, lambda _: None)
        assert read_account(tmp_path) == number
    learner.tune(job(learner, MEASURE), lambda: False, lambda _: None)
    assert read_account(tmp_path) == 3  # measuring tells nothing
    again = made(tmp_path)
    assert "over 3 messages" in again.notes[-1]
    again.tune(job(again), lambda: False, lambda _: None)
    assert read_account(tmp_path) == 4


def test_where_a_release_cannot_be_counted_none_is_made(tmp_path: Path) -> None:
    learner = made(tmp_path / "gone")
    with pytest.raises(StateError, match="cannot be written"):
        learner.tune(job(learner), lambda: False, lambda _: None)


def test_a_damaged_account_is_no_account(tmp_path: Path) -> None:
    (tmp_path / ACCOUNT).write_text("{}")
    with pytest.raises(StateError, match=r"privacy\.json is damaged"):
        made(tmp_path)


def test_status_says_what_it_is_and_what_it_is_not() -> None:
    text = said(PrivacySettings(clip=1.0, noise=20.0), 100)
    assert text.startswith("privacy: epsilon ")
    assert "per message, over 100 messages" in text
    assert "no guarantee for single images" in text


@pytest.mark.parametrize(("key", "value"), [("clip", 0.0), ("noise", 0.0), ("delta", 1.0)])
def test_settings_are_bounded(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"privacy.{key} is"):
        PrivacySettings(**{key: value})


def test_a_node_with_a_start_of_its_own_is_clipped_around_that(tmp_path: Path) -> None:
    peers = tmp_path / "peers.yaml"
    peers.write_text('mesh: m\ninsecure: true\npeers: [{name: a, address: "127.0.0.1:7101"}]\n')
    flags = ("privacy={clip: 1.0e-6, noise: 1.0e-3}", "tuning.kind=closed-form")
    for start, seed in (("common", 1), ("own", start_seed("own", 1, "a"))):
        plan = make(peers, None, "a", (*flags, f"tuning.start={start}"), tmp_path / start)
        plan.state.mkdir()
        learner = ClosedFormLearner("a")
        first = learner.initial(seed)
        told = private(plan, learner).tune(
            Job(1, "prompts", first, 7), lambda: False, lambda _: None
        )
        np.testing.assert_allclose(told.tensors["context"], first["context"], atol=1e-5)
