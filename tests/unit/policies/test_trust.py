"""Classes of peers whose means do not fit their names are left out, and no others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fednode.policies.gaussian import Floats, Sums
from fednode.policies.trust import at_most, counted, mislabelled

CLASSES = tuple("abcdefgh")
OWN = CLASSES[:4]


def sums(looks: str, classes: Sequence[str] = CLASSES, count: float = 5.0) -> Sums:
    """Return sums whose class at place k looks like the class looks[k]; "0" looks like none."""
    means = np.array(
        [np.eye(8)[CLASSES.index(one)] if one != "0" else np.zeros(8) for one in looks]
    )
    counts = np.full(len(looks), count)
    return Sums(tuple(classes), counts, means * counts[:, None])


def fit(known: Sums) -> Callable[[Floats], Floats]:
    """Return the logits of the nearest class mean."""
    return lambda x: x @ known.means.T - 0.5 * (known.means**2).sum(axis=1)


def prompt(x: Floats, names: Sequence[str]) -> Floats:
    return 10.0 * x[:, [CLASSES.index(name) for name in names]]


def left_out(accuracy: float, **peers: Sums) -> dict[str, str]:
    """Return the classes that are left out of each peer, in one word."""
    found = mislabelled(sums("abcd", OWN), peers, fit, prompt, accuracy)
    return {name: "".join(wrong) for name, wrong in found.items()}


@pytest.mark.parametrize(
    ("looks", "accuracy", "out"),
    [
        ("abcd", 0.9, ""),
        ("bcda", 0.9, "abcd"),  # all names turned round
        ("bcda", 0.25, ""),  # a classifier that knows little
        ("abdc", 0.9, "cd"),  # two labels swapped: the others stay
        ("abdc", 0.5, ""),
        ("abca", 0.9, ""),  # one wrong name may be chance
        ("0000", 0.9, "bcd"),  # no image: the first class is as good as any
    ],
)
def test_of_the_classes_that_the_node_has_the_wrong_ones_go(
    looks: str, accuracy: float, out: str
) -> None:
    expected = {"liar": out} if out else {}
    assert left_out(accuracy, honest=sums("abcd", OWN), liar=sums(looks, OWN)) == expected


def test_a_mean_of_another_kind_of_images_stays_though_it_is_named_wrong() -> None:
    """It lies between its own class's mean and another's, as where lighting differs."""
    mixed = 0.4 * np.eye(8)[:4] + 0.6 * np.roll(np.eye(8), -1, axis=0)[:4]
    kept = np.concatenate([np.eye(8)[:2], mixed[2:]])
    assert left_out(0.99, b=Sums(OWN, np.full(4, 5.0), 5.0 * kept)) == {}
    assert left_out(0.99, b=Sums(OWN, np.full(4, 5.0), 5.0 * mixed)) == {"b": "abc"}


@pytest.mark.parametrize(
    ("peers", "out"),
    [
        # Two have the classes: that one counts whose other classes fit.
        ({"b": "abcdefgh", "z": "badcfegh"}, {"z": "abcdef"}),
        ({"a": "badcfegh", "b": "abcdefgh"}, {"a": "abcdef"}),
        # Both fit as far as the node knows: the prompt decides.
        ({"a": "abcdfehg", "b": "abcdefgh"}, {"a": "efgh"}),
        # Three or more: the median, whoever comes first.
        ({"a": "abcdfehg", "b": "abcdefgh", "c": "abcdefgh"}, {"a": "efgh"}),
        ({"a": "abcd0000", "b": "abcdefgh", "c": "abcdefgh"}, {"a": "efgh"}),
        # Nobody else has them.
        ({"a": "abcdfehg"}, {}),
    ],
)
def test_of_classes_that_the_node_lacks_those_go_that_others_contradict(
    peers: dict[str, str], out: dict[str, str]
) -> None:
    found = left_out(0.9, **{name: sums(looks) for name, looks in peers.items()})
    assert {name: "".join(sorted(wrong)) for name, wrong in found.items()} == out


def test_who_copies_means_under_names_that_nobody_has_ousts_no_other_peer() -> None:
    """A peer's mean has noise. Its exact copy lies nearer to it than the node's own mean does."""
    draw = np.random.default_rng(1)
    means = np.eye(8)[:4] + 0.1 * draw.normal(size=(4, 8))
    honest = Sums(OWN, np.full(4, 5.0), 5.0 * means)
    copies = Sums(CLASSES[4:], np.full(4, 5.0), 5.0 * means)
    assert left_out(0.9, b=honest, liar=copies) == {}


def test_peers_in_another_order_are_judged_alike() -> None:
    peers = {"c": sums("abdcfegh"), "a": sums("abcdefgh"), "b": sums("hgfedcba")}
    own = sums("abcd", OWN)
    found = mislabelled(own, peers, fit, prompt, 0.9)
    turned = mislabelled(own, dict(sorted(peers.items())), fit, prompt, 0.9)
    assert list(found.items()) == list(turned.items())


def test_the_chance_of_few_right_names() -> None:
    from scipy.stats import binom  # takes seconds, which other workers need not wait

    for count, share in itertools.product((1, 2, 30, 1100, 4096), (0.0, 0.1, 0.6, 0.9, 1.0)):
        for right in {0, count // 5, count // 2, count - 1, count}:
            expected = float(binom.cdf(right, count, share))
            assert at_most(right, count, share) == pytest.approx(expected, rel=1e-6, abs=1e-30)


def test_a_count_weighs_ten_times_the_median_at_most() -> None:
    own = sums("ab", "ab", 4.0)
    peers = {"b": sums("ab", "ab", 6.0), "liar": sums("ab", "ab", 1e6)}
    honest, liar = counted(own, peers, {})
    assert honest is peers["b"]
    assert liar.counts.tolist() == [60.0, 60.0]
    assert np.allclose(liar.means, peers["liar"].means)
    (alone,) = counted(own, {"liar": peers["liar"]}, {})
    assert alone.counts.tolist() == [40.0, 40.0], "of two counts the smaller is the median"


def test_classes_that_are_left_out_do_not_count() -> None:
    peers = {"b": sums("abcd", OWN), "z": sums("ba", "ab")}
    found = counted(None, peers, {"b": {"c": "d", "d": "c"}, "z": {"a": "b", "b": "a"}})
    assert [one.classes for one in found] == [("a", "b")]
    assert found[0].counts.tolist() == [5.0, 5.0]
