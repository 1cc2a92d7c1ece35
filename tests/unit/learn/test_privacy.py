"""Clipping, noise and the account of it: against closed forms, and through a crash."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from fednode.app.plan import NodePlan, make, privacy_of
from fednode.core.policy import start_seed
from fednode.core.types import MEASURE, Account, Job, PolicyState, Report, Snapshot, Tensors
from fednode.errors import StateError
from fednode.learn.learner import released
from fednode.learn.privacy import (
    ACCOUNT,
    Privacy,
    clip_and_noise,
    describe,
    epsilon,
    read_account,
)
from fednode.learn.quadratic import QuadraticLearner
from fednode.learn.settings import PrivacySettings
from fednode.storage.store import Store

INITIAL = Tensors({"a": np.ones(3), "b": np.zeros((2, 2))})
NO_NOISE = 1e-12


def chance() -> np.random.Generator:
    return np.random.default_rng(5)


def test_a_short_change_passes_and_a_long_one_is_shortened_over_all_arrays() -> None:
    trained = Tensors({"a": [4.0, 1.0, 1.0], "b": [[4.0, 0.0], [0.0, 0.0]]})  # a change of norm 5
    same = clip_and_noise(trained, INITIAL, 10.0, NO_NOISE, chance())
    np.testing.assert_allclose(same["a"], trained["a"], rtol=1e-6)
    half = clip_and_noise(trained, INITIAL, 2.5, NO_NOISE, chance())
    np.testing.assert_allclose(half["a"], [2.5, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(half["b"][0], [2.0, 0.0], rtol=1e-6, atol=1e-9)
    assert clip_and_noise(INITIAL, INITIAL, 1.0, NO_NOISE, chance()).finite()


def test_noise_is_gaussian_of_so_many_clips() -> None:
    wide = Tensors({"x": np.zeros(200_000)})
    drawn = clip_and_noise(wide, wide, 2.0, 1.5, chance())["x"]
    assert float(drawn.std()) == pytest.approx(3.0, rel=0.01)
    assert abs(float(drawn.mean())) < 0.03
    assert clip_and_noise(wide, wide, 2.0, 1.5, np.random.default_rng()) != Tensors({"x": drawn})


@pytest.mark.parametrize("noise", [2.0, 10.0, 50.0])
@pytest.mark.parametrize("releases", [1, 30, 1000])
def test_epsilon_bounds_the_exact_one_of_composed_gaussians(noise: float, releases: int) -> None:
    """delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) (Dong, Roth, Su 2022)."""
    mu, delta, normal = math.sqrt(releases) / (noise / 2.0), 1e-5, NormalDist()
    found = epsilon([(noise, releases)], delta)
    assert epsilon([(noise, 0)], delta) == 0.0

    def exact(value: float) -> float:
        first = normal.cdf(-value / mu + mu / 2)
        # Far out the product is of a huge and a tiny number.
        tail = normal.cdf(-value / mu - mu / 2)
        return first - (math.exp(value) * tail if tail > 0 else 0.0)

    if found < 500:
        assert exact(found) <= delta * 1.001
        assert exact(found * 0.6) > delta  # and it is no idle bound


LEARNER = QuadraticLearner("a")


def made(folder: Path, **settings: float | None) -> Privacy:
    given = PrivacySettings(**{"clip": 0.5, "noise": 0.1, **settings})  # type: ignore[arg-type]
    return Privacy(given, LEARNER.initial(1), folder, chance())


def job(stage: str = "prompts", measure: bool = True) -> Job:
    return Job(round=1, stage=stage, tensors=LEARNER.initial(1), seed=7, measure=measure)


def tune(privacy: Privacy, of: Job) -> Report:
    """Tune as a node does."""
    return released(LEARNER, privacy.release, of, lambda: False, lambda _: None)


def test_what_comes_out_is_near_the_start_and_its_figures_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training that moves no array sends the same names as training that moves all."""
    moving = QuadraticLearner.tune
    monkeypatch.setattr(
        QuadraticLearner, "tune", lambda *given: replace(moving(*given), changed=())
    )
    report = tune(made(tmp_path, noise=NO_NOISE), job())
    assert report.changed == tuple(report.tensors) == ("context",)
    change = report.tensors["context"] - LEARNER.initial(1)["context"]
    assert float(np.linalg.norm(change)) == pytest.approx(0.5, rel=1e-5)
    expected = LEARNER.evaluate(report.tensors, lambda: False)["own"]
    assert report.metrics["own"] == pytest.approx(expected)


def test_releases_are_counted_on_disk_before_they_are_made(tmp_path: Path) -> None:
    privacy = made(tmp_path)
    for number in (1, 2, 3):
        tune(privacy, job(measure=number == 2))
        assert read_account(tmp_path)[0] == {(0.5, 0.1): number}
    tune(privacy, job(MEASURE))
    assert read_account(tmp_path)[0] == {(0.5, 0.1): 3}  # measuring tells nothing
    again = made(tmp_path)
    assert "over 3 messages" in again.note
    tune(again, job())
    assert read_account(tmp_path)[0] == {(0.5, 0.1): 4}


def spent_on(privacy: Privacy, count: int) -> None:
    for _ in range(count):
        tune(privacy, job())


def test_each_release_keeps_the_price_of_its_own_noise(tmp_path: Path) -> None:
    """At the noise of today 5 releases would cost next to nothing."""
    spent_on(made(tmp_path, noise=0.01), 3)
    quiet = made(tmp_path, noise=100.0)
    spent_on(quiet, 2)
    assert read_account(tmp_path)[0] == {(0.5, 0.01): 3, (0.5, 100.0): 2}
    spent = epsilon([(0.01, 3), (100.0, 2)], 1e-5)
    assert spent > epsilon([(0.01, 3)], 1e-5) > 10_000
    assert f"privacy: epsilon {spent:.3g} at delta 1e-05" in quiet.note
    assert "over 5 messages (3 with clip 0.5 and noise 0.01, 2 with " in quiet.note


def test_rounds_without_clipping_are_not_forgotten(tmp_path: Path) -> None:
    open_ = made(tmp_path, clip=None)
    assert open_.note == ""
    report = tune(open_, job())
    assert report.tensors == LEARNER.tune(job(), lambda: False, lambda _: None).tensors
    spent_on(open_, 2)
    closed = made(tmp_path)
    spent_on(closed, 1)
    assert closed.note.startswith("privacy: no epsilon holds for this node's data set")


def test_start_refuses_rounds_whose_account_was_deleted(tmp_path: Path) -> None:
    plan = planned(tmp_path, "privacy={clip: 0.5, noise: 0.1}")
    privacy_of(plan, LEARNER)
    (plan.state / ACCOUNT).unlink()
    store, prompts = Store(plan.state), LEARNER.initial(1)
    store.commit(Snapshot(PolicyState(255, prompts, prompts), {}))
    store.close()
    with pytest.raises(StateError, match=r"privacy\.json is missing, .* restore it from a backup"):
        privacy_of(plan, LEARNER)


def test_an_account_that_is_damaged_or_cannot_be_written_ends_releases(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot be written"):
        tune(made(tmp_path / "gone"), job())
    huge = f'{{"releases": [{{"clip": 1{"0" * 400}, "noise": 1, "count": 1}}]}}'
    for text in ("{}", "", '{"releases": 172}', huge, "[" * 100_000):
        (tmp_path / ACCOUNT).write_text(text)
        with pytest.raises(StateError, match=r"privacy\.json is damaged, so what was released"):
            made(tmp_path)


def test_status_says_what_it_is_and_what_it_is_not() -> None:
    text = describe(PrivacySettings(clip=1.0, noise=20.0), {(1.0, 20.0): 100})
    assert text.startswith("privacy: epsilon ")
    assert "per message, over 100 messages" in text
    assert "no guarantee for single images" in text


def planned(folder: Path, *flags: str) -> NodePlan:
    """Return the plan of a node in a folder, with a state directory that is there."""
    peers = folder / "peers.yaml"
    peers.write_text('mesh: m\ninsecure: true\npeers: [{name: a, address: "127.0.0.1:7101"}]\n')
    plan = make(peers, None, "a", ("tuning.kind=closed-form", *flags), folder / "state")
    plan.state.mkdir(exist_ok=True)
    return plan


def test_a_node_with_a_start_of_its_own_is_clipped_around_that(tmp_path: Path) -> None:
    flag = "privacy={clip: 1.0e-6, noise: 1.0e-3}"
    for start, seed in (("common", 1), ("own", start_seed("own", 1, "a"))):
        plan = planned(tmp_path, flag, f"tuning.start={start}")
        first = LEARNER.initial(seed)
        begun = Job(round=1, stage="prompts", tensors=first, seed=7)
        told = tune(privacy_of(plan, LEARNER), begun)
        np.testing.assert_allclose(told.tensors["context"], first["context"], atol=1e-5)


@pytest.mark.parametrize("known", [0, 2])
def test_after_releases_elsewhere_no_epsilon_holds_and_the_decision_is_kept(
    tmp_path: Path, known: int
) -> None:
    """Their noise is not known; that of today and of other releases says nothing of it."""
    privacy = made(tmp_path)
    spent_on(privacy, known)
    privacy.missed(0, "still")
    assert "no epsilon holds" not in privacy.note
    privacy.missed(3, "peers have seen it later")
    assert "no epsilon holds" in privacy.note
    privacy = made(tmp_path, noise=100.0)
    assert privacy.account == Account(known + 3, "peers have seen it later")
    privacy.missed(1, "")
    spent_on(privacy, 1)
    assert "no epsilon holds" in made(tmp_path).note
    assert made(tmp_path).account == Account(known + 5)
