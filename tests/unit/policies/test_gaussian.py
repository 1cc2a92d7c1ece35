"""The Gaussian classifier against brute force in float64: formulas from images, and refits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev

import numpy as np
import pytest

from fednode.policies.gaussian import (
    FOLDS,
    SURELY,
    Floats,
    GaussianClassifier,
    Scatter,
    Sums,
    folds_of,
    least_loss,
    log_loss,
    merge,
    peer_weight,
    pool,
    surely,
    within,
)

SIZE = 12
NAMES = ("ant", "bee", "cow", "dog", "emu")
PUBLIC = np.diag(np.linspace(0.5, 2.0, SIZE)) + 0.1


def mesh_scatter(mine: int) -> Scatter:
    """Return the scatter of one node's images and of the means of all nodes."""
    _, between = merge([Sums.of(*one) for one in MESH])
    return within(*MESH[mine]).plus(between)


def texts(classes: Sequence[str]) -> Floats:
    drawn = [np.random.default_rng([9, *name.encode()]).normal(size=SIZE) for name in classes]
    return np.array([one / np.linalg.norm(one) for one in drawn]).reshape(-1, SIZE)


def node(seed: int, counts: dict[str, int]) -> tuple[Floats, list[str]]:
    """Return unit features of a node's images near their class's place, and their classes."""
    draw, x = np.random.default_rng(seed), []
    names = [name for name, count in counts.items() for _ in range(count)]
    for name in names:
        one = 1.5 * texts([name])[0] + 0.3 * draw.normal(size=SIZE) + 0.2
        x.append(one / np.linalg.norm(one))
    return np.array(x), names


MESH = [
    node(1, {"ant": 5, "bee": 4, "cow": 1}),
    node(2, {"bee": 3, "ant": 1}),
    node(3, {"dog": 6, "cow": 4}),
]
ASKED, _ = node(7, dict.fromkeys(NAMES, 3))


def textbook(x: Floats, names: list[str], asked: Floats) -> Floats:
    """Return g of known classes by the formulas alone, from the images themselves."""
    known, y = sorted(set(names)), np.array(names)
    means = np.array([x[y == name].mean(axis=0) for name in known])
    scatter, free = np.zeros((SIZE, SIZE)), len(x) - len(known)
    for one, name in zip(x, names, strict=True):
        off = one - means[known.index(name)]
        scatter += np.outer(off, off)
    spread = np.trace(scatter) / free
    public = PUBLIC * spread / np.trace(PUBLIC)
    sphere = np.eye(SIZE) * spread / SIZE
    precision = np.linalg.inv((scatter + 100 * public + 100 * sphere) / (free + 200))
    text = texts(known) - texts(known).mean(axis=0)
    line = ((means - means.mean(axis=0)) * text).sum() / (text**2).sum()
    found = []
    for name, expected in zip(known, means.mean(axis=0) + line * text, strict=True):
        count = (y == name).sum()
        mu = (x[y == name].sum(axis=0) + expected) / (count + 1)
        found.append(asked @ precision @ mu - 0.5 * mu @ precision @ mu)
    return np.array(found).T


def test_one_node_s_classifier_is_that_of_the_formulas() -> None:
    for x, names in MESH:
        head = GaussianClassifier(Sums.of(x, names), texts, within(x, names), PUBLIC)
        known = head.sums.classes
        assert known == tuple(sorted(set(names)))
        assert np.abs(head.log_density(ASKED, known) - textbook(x, names, ASKED)).max() < 1e-10


@pytest.mark.parametrize("mine", range(3))
def test_a_mesh_s_classifier_is_one_owner_s_if_others_images_were_their_class_s_mean(
    mine: int,
) -> None:
    """All that another node tells is its classes' means, so its images count as copies of them."""
    parts = [Sums.of(*one) for one in MESH]
    head = GaussianClassifier(pool(parts), texts, mesh_scatter(mine), PUBLIC)
    x, names = list[Floats](), list[str]()
    for at, (own, theirs) in enumerate(MESH):
        means = dict(zip(parts[at].classes, parts[at].means, strict=True))
        x += list(own) if at == mine else [means[name] for name in theirs]
        names += theirs
    free = mesh_scatter(mine).free
    scale = (free + 200) / (len(x) - len(set(names)) + 200)  # copies are no degrees of freedom
    spread = np.trace(mesh_scatter(mine).inside) / free
    inside = within(np.array(x), names).inside
    inside = inside + spread * (100 * PUBLIC / np.trace(PUBLIC) + 100 * np.eye(SIZE) / SIZE)
    precision = scale * np.linalg.inv(inside / (len(x) - len(set(names)) + 200))
    centres = GaussianClassifier(
        Sums.of(np.array(x), names), texts, within(*MESH[0]), PUBLIC
    ).centres(NAMES)
    expected = ASKED @ precision @ centres.T - 0.5 * ((centres @ precision) * centres).sum(axis=1)
    assert np.abs(head.log_density(ASKED, NAMES) - expected).max() < 1e-10


def test_the_scatter_of_means_is_what_lies_between_nodes() -> None:
    parts = [Sums.of(*one) for one in MESH]
    known, (found, free) = merge(parts)
    expected = np.zeros((SIZE, SIZE))
    for one in parts:
        for at, name in enumerate(one.classes):
            off = one.means[at] - known.means[known.classes.index(name)]
            expected += one.counts[at] * np.outer(off, off)
    assert np.allclose(found, expected, atol=1e-12)
    assert free == (3 + 2 + 2) - 4
    assert np.array_equal(known.sums, pool(parts).sums)


def test_parts_that_are_merged_in_two_steps_scatter_as_in_one() -> None:
    parts = [Sums.of(*one) for one in MESH]
    (some, apart), (rest, others) = merge(parts[:1]), merge(parts[1:])
    whole, between = merge([some, rest])
    expected = merge(parts)
    assert whole.classes == expected[0].classes
    found = between.plus(apart).plus(others)
    assert found.free == expected[1].free
    assert np.allclose(found.inside, expected[1].inside, atol=1e-12)


def test_a_class_without_images_lies_on_the_line_of_texts() -> None:
    parts = [Sums.of(*one) for one in MESH]
    head = GaussianClassifier(pool(parts), texts, mesh_scatter(0), PUBLIC)
    known = head.sums.classes
    text, means = texts(known) - texts(known).mean(axis=0), head.sums.means
    slope = (text * (means - means.mean(axis=0))).sum() / (text**2).sum()
    here = texts(["emu"]) - texts(known).mean(axis=0)
    assert np.allclose(head.centres(["emu"]), means.mean(axis=0) + slope * here, atol=1e-12)


def test_own_means_count_their_images_and_the_mesh_s_the_weight() -> None:
    parts = [Sums.of(*one) for one in MESH]
    head = GaussianClassifier(pool(parts), texts, mesh_scatter(1), PUBLIC)
    centres = head.centres(NAMES)
    counts, sums = parts[1].at(NAMES)
    centres[:2] = (sums[:2] + 2.0 * centres[:2]) / (counts[:2] + 2.0)[:, None]
    expected = ASKED @ head.precision @ centres.T
    expected -= 0.5 * ((centres @ head.precision) * centres).sum(axis=1)
    assert np.allclose(head.log_density(ASKED, NAMES, parts[1], 2.0), expected, atol=1e-10)
    assert np.array_equal(
        head.log_density(ASKED, NAMES, parts[1], 0.0), head.log_density(ASKED, NAMES)
    )


def test_the_worth_of_the_mesh_is_that_of_its_images_or_falls_where_they_are_of_another_kind() -> (
    None
):
    x, names = node(1, {"ant": 40, "bee": 40})
    mine, spread = Sums.of(*node(2, {"ant": 10, "bee": 10})), within(x, names).spread
    assert peer_weight(mine, Sums.of(x, names), spread) > 15.0
    moved = x + 0.8 * texts(["other"])
    unlike = Sums.of(moved / np.linalg.norm(moved, axis=1, keepdims=True), names)
    assert peer_weight(mine, unlike, spread) < 2.0
    assert peer_weight(mine, Sums.of(*node(3, {"dog": 5})), spread) == 0.0


def test_one_image_a_class_and_no_image_at_all_give_finite_answers() -> None:
    x, names = node(1, {"ant": 1, "bee": 1})
    head = GaussianClassifier(Sums.of(x, names), texts, within(x, names), PUBLIC)
    assert np.isfinite(head.log_density(x, NAMES)).all()
    assert head.spread == pytest.approx(np.trace(PUBLIC))
    nothing = np.zeros((0, SIZE))
    empty = GaussianClassifier(Sums.of(nothing, []), texts, within(nothing, []), PUBLIC)
    assert (empty.log_density(texts(NAMES), NAMES).argmax(axis=1) == range(5)).all()


def test_copies_of_one_image_spread_as_public_images_do() -> None:
    x = np.repeat(texts(["ant", "bee"]), 3, axis=0)
    names = ["ant"] * 3 + ["bee"] * 3
    assert within(x, names).spread == 0.0
    assert GaussianClassifier(Sums.of(x, names), texts, within(x, names), PUBLIC).spread > 1.0
    assert Scatter(np.eye(2), 0.5).spread == 0.0


def test_each_fold_leaves_out_about_as_many_images_of_each_class() -> None:
    names = ["ant"] * 25 + ["bee"] * 3 + ["cow"]
    folds = folds_of(names)
    assert len(folds) == FOLDS
    assert (np.sum(folds, axis=0) == 1).all()
    for fold in folds:
        left = Counter(name for name, out in zip(names, fold, strict=True) if out)
        assert 2 <= left["ant"] <= 3
        assert left["bee"] <= 1
    assert len(folds_of(["ant", "bee"])) == 2


def test_no_fold_divides_a_patient() -> None:
    names = ["ant"] * 30 + ["bee"] * 10
    patients = [b"%d" % (at // 3) for at in range(40)]
    folds = folds_of(names, patients)
    assert (np.sum(folds, axis=0) == 1).all()
    for fold in folds:
        held = {patient for patient, out in zip(patients, fold, strict=True) if out}
        assert [patient in held for patient in patients] == fold.tolist()


def test_surely_better_takes_the_standard_error_of_a_sample() -> None:
    worse = [0.5, 1.0, 4.0]
    expected = fmean(worse) - SURELY * stdev(worse) / len(worse) ** 0.5
    assert surely(np.array(worse)) == pytest.approx(expected)
    assert surely(np.array([5.0])) < 0


def test_logits_of_another_scale_have_the_same_least_loss() -> None:
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 3, 40)
    logits = 3 * np.eye(3)[labels] + draw.normal(size=(40, 3))
    assert np.allclose(least_loss(logits, labels), least_loss(logits * 2.0, labels), atol=0.02)
    assert log_loss(logits * 2.0, labels).mean() < 0.7 * log_loss(logits, labels).mean()
    by_hand = -np.log(np.exp(logits[0, labels[0]]) / np.exp(logits[0]).sum())
    assert log_loss(logits[:1], labels[:1])[0] == pytest.approx(by_hand)
