"""The Gaussian classifier against independent computations: all images at one place, and refits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fednode.learn.gaussian import (
    Floats,
    Head,
    Prior,
    Scatter,
    Sums,
    between,
    class_means,
    near,
    total,
)

SIZE = 12
NAMES = ("ant", "bee", "cow", "dog", "emu")


def texts(classes: Sequence[str]) -> Floats:
    drawn = [np.random.default_rng([9, *name.encode()]).normal(size=SIZE) for name in classes]
    return np.array([one / np.linalg.norm(one) for one in drawn])


def node(seed: int, counts: dict[str, int]) -> tuple[Floats, list[str]]:
    """Return unit features of a node's images near their class's place, and their classes."""
    draw, x = np.random.default_rng(seed), []
    names = [name for name, count in counts.items() for _ in range(count)]
    for name in names:
        one = 1.5 * texts([name])[0] + 0.3 * draw.normal(size=SIZE) + 0.2
        x.append(one / np.linalg.norm(one))
    return np.array(x), names


def sums(x: Floats, names: list[str]) -> Sums:
    classes = ["zebra", *reversed(NAMES)]  # in any order, and one without images
    return Sums.of(x, [classes.index(name) for name in names], classes)


MESH = [
    node(1, {"ant": 5, "bee": 4, "cow": 1}),
    node(2, {"bee": 3, "ant": 1}),
    node(3, {"dog": 6, "cow": 4}),
]


def textbook(x: Floats, names: list[str], asked: Floats, rho: float, kappa: float) -> Floats:
    """Return g of known classes by the formulas alone, from the images themselves."""
    known, y = sorted(set(names)), np.array(names)
    means = np.array([x[y == name].mean(axis=0) for name in known])
    off = np.concatenate([x[y == name] - x[y == name].mean(axis=0) for name in known])
    scatter, free = off.T @ off, len(x) - len(known)
    tau = np.trace(scatter) / (free * SIZE)
    precision = np.linalg.inv((scatter + rho * tau * np.eye(SIZE)) / (free + rho))
    text = texts(known) - texts(known).mean(axis=0)
    line = ((means - means.mean(axis=0)) * text).sum() / (text**2).sum()
    prior = means.mean(axis=0) + line * text
    found = []
    for name, expected in zip(known, prior, strict=True):
        count = (y == name).sum()
        mu = (x[y == name].sum(axis=0) + kappa * expected) / (count + kappa)
        found.append(asked @ precision @ mu - 0.5 * mu @ precision @ mu)
    return np.array(found).T


def test_sums_of_nodes_give_the_classifier_of_one_owner_of_all_images() -> None:
    x = np.concatenate([one for one, _ in MESH])
    names = [name for _, some in MESH for name in some]
    head = Head(total([sums(*one) for one in MESH]), texts)
    assert head.sums.classes == ("ant", "bee", "cow", "dog")
    asked, _ = node(7, dict.fromkeys(NAMES, 3))
    found = head.gauss(asked, head.sums.classes)
    assert np.abs(found - textbook(x, names, asked, 100.0, 1.0)).max() < 1e-10
    again = Head(sums(x, names), texts).gauss(asked, head.sums.classes)
    assert np.abs(found - again).max() < 1e-10


def test_a_class_without_images_lies_where_its_text_says() -> None:
    head = Head(total([sums(*one) for one in MESH]), texts)
    known = head.sums.classes
    text, means = texts(known) - texts(known).mean(axis=0), head.sums.means
    centred = means - means.mean(axis=0)
    slope = (text * centred).sum() / (text**2).sum()
    # Ridge regression in the primal form, of which the file has the kernel form.
    strength = (text**2).sum() / len(known)
    ridge = np.linalg.solve(
        text.T @ text + strength * np.eye(SIZE), text.T @ (centred - slope * text)
    )
    here = texts(["emu"]) - texts(known).mean(axis=0)
    expected = means.mean(axis=0) + here * slope + here @ ridge
    assert np.allclose(head.centres(["emu"]), expected, atol=1e-12)


@pytest.mark.parametrize("prior", [Prior(), Prior(rho=None, kappa=0.5, lam=2.0), Prior(rho=3.0)])
def test_left_out_images_are_judged_as_by_a_classifier_that_never_had_them(prior: Prior) -> None:
    parts = [sums(*one) for one in MESH]
    whole = total(parts)
    for at, (x, names) in enumerate(MESH):
        found = Head(whole, texts, prior).left_out(x, names, whole.classes)
        for image, name in enumerate(names):
            rest = np.delete(x, image, axis=0), [*names[:image], *names[image + 1 :]]
            others = [sums(*rest) if one == at else parts[one] for one in range(len(parts))]
            refit = Head(total(others), texts, prior).gauss(x[image : image + 1], whole.classes)
            assert np.abs(found[image] - refit[0]).max() < 1e-6, name


def test_left_out_is_exact_for_means_that_come_without_second_moments() -> None:
    parts = [sums(*one) for one in MESH]
    x, names = MESH[0]
    whole = total(parts)

    def scatter(own: Sums, others: list[Sums]) -> Scatter:
        return between(own.scatter, [own, *others])

    head = Head(whole, texts, scatter=scatter(parts[0], parts[1:]))
    near_own = head.left_out(x, names, parts[0].classes, parts[0], 2.5)
    plain = head.left_out(x, names, whole.classes)
    for image in range(len(names)):
        rest = sums(np.delete(x, image, axis=0), [*names[:image], *names[image + 1 :]])
        left = Head(
            total([rest, *parts[1:]]), texts, scatter=scatter(rest, parts[1:])
        )  # fmt: skip
        one = x[image : image + 1]
        assert np.abs(plain[image] - left.gauss(one, whole.classes)[0]).max() < 1e-6
        drawn = left.gauss(one, parts[0].classes, rest, 2.5)[0]
        assert np.abs(near_own[image] - drawn).max() < 1e-6


def test_the_scatter_without_moments_adds_what_lies_between_nodes() -> None:
    parts = [sums(*one) for one in MESH]
    found, free = between(parts[0].scatter, parts)
    known = total(parts)
    expected, count = parts[0].scatter
    for one in parts:
        for at, name in enumerate(one.classes):
            off = one.means[at] - known.means[known.classes.index(name)]
            expected = expected + one.counts[at] * np.outer(off, off)
    assert np.allclose(found, expected, atol=1e-12)
    assert free == count + (3 + 2 + 2) - 4


def test_the_published_shrinkage_is_the_published_classifier_up_to_a_factor() -> None:
    """Wang et al., arXiv 2402.04087: D ((N - 1) S + tr(S) I)^-1 with S the covariance."""
    x, names = MESH[0]
    known, y = sorted(set(names)), np.array(names)
    means = np.array([x[y == name].mean(axis=0) for name in known])
    off = np.concatenate([x[y == name] - x[y == name].mean(axis=0) for name in known])
    cov = off.T @ off / (len(x) - 1)
    precision = SIZE * np.linalg.pinv((len(x) - 1) * cov + np.trace(cov) * np.eye(SIZE))
    asked, _ = node(7, dict.fromkeys(NAMES, 3))
    theirs = asked @ precision @ means.T - 0.5 * ((means @ precision) * means).sum(axis=1)
    ours = Head(sums(x, names), texts, Prior(rho=None, kappa=0.0)).gauss(asked, known)
    ratio = ours / theirs
    assert np.allclose(ratio, ratio[0, 0], rtol=1e-9)
    assert ratio[0, 0] > 0


def test_class_means_are_the_nearest_means() -> None:
    x, names = MESH[0]
    asked, _ = node(7, dict.fromkeys(NAMES, 3))
    found = class_means(sums(x, names), texts, asked, ["emu", "ant", "bee"])
    y = np.array(names)
    means = np.array([x[y == name].mean(axis=0) for name in ("ant", "bee")])
    places = np.concatenate(
        [texts(["emu"]), means / np.linalg.norm(means, axis=1, keepdims=True)]
    )  # fmt: skip
    apart = np.linalg.norm(asked[:, None] - places[None], axis=2)
    assert (found.argmax(axis=1) == apart.argmin(axis=1)).all()


def test_own_means_count_their_images_and_the_mesh_the_weight() -> None:
    parts = [sums(*one) for one in MESH]
    head = Head(total(parts), texts)
    centres = head.centres(NAMES)
    counts, own = parts[1].at(NAMES)
    found = near(centres, counts, own, 2.0)
    assert np.allclose(found[0], (own[0] + 2.0 * centres[0]) / 3.0)
    assert np.array_equal(found[2:], centres[2:])


def test_the_worth_of_the_mesh_is_that_of_its_images_or_falls_where_they_are_of_another_kind() -> (
    None
):
    x, names = node(1, {"ant": 40, "bee": 40})
    mine, more = node(2, {"ant": 10, "bee": 10}), node(3, {"dog": 5})
    like = [sums(*mine), sums(x, names)]
    assert Head(total(like), texts).worth(like[0]) > 15.0
    moved = x + 0.8 * texts(["other"])
    unlike = [sums(*mine), sums(moved / np.linalg.norm(moved, axis=1, keepdims=True), names)]
    assert Head(total(unlike), texts).worth(unlike[0]) < 2.0
    apart = [sums(*mine), sums(*more)]
    assert Head(total(apart), texts).worth(apart[0]) == 0.0


def test_without_undoes_total() -> None:
    parts = [sums(*one) for one in MESH]
    left = total(parts).without(parts[0])
    rest = total(parts[1:])
    assert left.classes == rest.classes
    assert np.allclose(left.sums, rest.sums)
    assert np.array_equal(left.counts, rest.counts)
    assert left.moment is not None
    assert rest.moment is not None
    assert np.allclose(left.moment, rest.moment)


@pytest.mark.parametrize("prior", [Prior(), Prior(rho=None, kappa=0.0)])
def test_one_image_a_class_and_no_image_at_all_give_finite_answers(prior: Prior) -> None:
    x, names = node(1, {"ant": 1, "bee": 1})
    head = Head(sums(x, names), texts, prior)
    assert np.isfinite(head.gauss(x, NAMES)).all()
    assert np.isfinite(head.left_out(x, names, ("ant", "bee"))).all()
    empty = Sums((), np.zeros(0), np.zeros((0, SIZE)), np.zeros((SIZE, SIZE)))
    assert (Head(empty, texts, prior).gauss(texts(NAMES), NAMES).argmax(axis=1) == range(5)).all()
