"""Splits against the protocol's published counts and against small cases worked by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fednode.data import splits

# Classes of ZeroDFL's nine data sets, and the clients that Table III of its paper gives them, for
# 20 and for 10 classes per client.
DATA_SETS = {
    "caltech101": (100, 2, 5),
    "oxford_flowers": (102, 3, 5),
    "oxford_pets": (37, 1, 2),
    "fgvc_aircraft": (100, 2, 5),
    "dtd": (47, 1, 2),
    "ucf101": (101, 3, 5),
    "food101": (101, 3, 5),
    "stanford_cars": (196, 5, 10),
    "sun397": (397, 10, 20),
}


def files(count: int) -> list[Path]:
    return [Path(f"/data/{number:03d}.jpg") for number in range(count)]


def base_size(classes: int) -> int:
    base, new = splits.halves([f"{number:03d}" for number in range(classes)])
    assert len(base) + len(new) == classes
    return len(base)


@pytest.mark.parametrize("name", DATA_SETS)
def test_clients_per_data_set_are_the_published_ones(name: str) -> None:
    classes, by_20, by_10 = DATA_SETS[name]
    base = base_size(classes)
    assert splits.client_count(base, 20) == by_20
    assert splits.client_count(base, 10) == by_10


def test_all_data_sets_together_have_30_and_59_clients() -> None:
    bases = [base_size(classes) for classes, _, _ in DATA_SETS.values()]
    assert sum(len(splits.client_blocks(base, 20)) for base in bases) == 30
    assert sum(len(splits.client_blocks(base, 10)) for base in bases) == 59


def test_client_count_rounds_as_numpy_does() -> None:
    for classes in range(1, 400):
        for per_client in (1, 2, 3, 10, 20):
            expected = max(1, int(np.around(classes / per_client)))
            assert splits.client_count(classes, per_client) == expected


def test_last_client_takes_the_remainder() -> None:
    assert splits.client_blocks(50, 20) == (range(20), range(20, 50))
    assert splits.client_blocks(51, 20) == (range(20), range(20, 40), range(40, 51))
    assert splits.client_blocks(19, 20) == (range(19),)


@pytest.mark.parametrize("count", [0, 4])
def test_blocks_need_a_class_for_every_node(count: int) -> None:
    with pytest.raises(ValueError, match=f"3 classes cannot be divided among {count} nodes"):
        splits.even_blocks(3, count)


def test_base_half_is_the_larger_one() -> None:
    assert splits.halves(["c", "a", "b"]) == (("c", "a"), ("b",))


def test_four_of_five_images_train_and_one_tests() -> None:
    test, rest = splits.draw_test(files(20), "ant", 0.2)
    assert (len(test), len(rest)) == (4, 16)
    assert sorted([*test, *rest]) == files(20)


@pytest.mark.parametrize(("share", "expected"), [(0.01, 1), (0.99, 2)])
def test_small_classes_have_an_image_on_each_side(share: float, expected: int) -> None:
    test, rest = splits.draw_test(files(3), "ant", share)
    assert (len(test), len(rest)) == (expected, 3 - expected)


def test_a_test_split_of_one_image_is_refused() -> None:
    with pytest.raises(ValueError, match="class 'ant' has 1 images; a test split needs 2"):
        splits.draw_test(files(1), "ant", 0.2)


def test_draws_are_the_same_on_every_machine() -> None:
    """Pinned: nodes on different platforms must agree on who holds what."""
    test, rest = splits.draw_test(files(10), "ant", 0.2)
    order = splits.shuffle(rest, "ant", seed=1)
    assert [path.stem for path in test] == ["003", "004"]
    assert [path.stem for path in order] == ["005", "009", "008", "000", "002", "006", "007", "001"]
    shares = splits.dirichlet({"ant": order}, count=3, alpha=0.5, seed=1)
    assert [len(share.get("ant", ())) for share in shares] == [6, 1, 1]


def test_order_depends_on_seed_and_class() -> None:
    orders = {splits.shuffle(files(20), name, seed) for name in ("ant", "bee") for seed in (1, 2)}
    assert len(orders) == 4


def test_fewer_shots_are_among_more_shots() -> None:
    order = splits.shuffle(files(20), "ant", seed=1)
    four, _ = splits.draw_training(order, 4, 0.0)
    eight, _ = splits.draw_training(order, 8, 0.0)
    assert eight[:4] == four


def test_validation_leaves_the_shots_as_they_are() -> None:
    order = splits.shuffle(files(20), "ant", seed=1)
    plain, none = splits.draw_training(order, 8, 0.0)
    train, validation = splits.draw_training(order, 8, 0.25)
    assert (train, none, len(validation)) == (plain, (), 5)
    assert not set(train) & set(validation)


def test_a_single_image_trains() -> None:
    assert splits.draw_training(files(1), 8, 0.5) == (tuple(files(1)), ())


def test_two_images_are_shared_with_validation() -> None:
    train, validation = splits.draw_training(files(2), 8, 0.01)
    assert (len(train), len(validation)) == (1, 1)


def test_large_alpha_shares_evenly_and_small_alpha_does_not() -> None:
    pools = {f"class {number}": files(100) for number in range(10)}
    even = splits.dirichlet(pools, 4, 1e6, seed=1)
    assert all(24 <= len(share[name]) <= 26 for share in even for name in pools)
    skewed = splits.dirichlet(pools, 4, 1e-3, seed=1)
    assert any(name not in share for share in skewed for name in pools)


def test_vanishing_alpha_gives_every_class_to_one_node() -> None:
    shares = splits.dirichlet({"ant": files(10)}, 2, 1e-9, seed=1)
    assert sorted(len(share["ant"]) for share in shares) == [1, 9]


@pytest.mark.parametrize("seed", range(8))
def test_a_node_that_was_dealt_nothing_gets_a_class_of_one_image(seed: int) -> None:
    pools = {"ant": files(1), "bee": files(1)}
    shares = splits.dirichlet(pools, 2, 1e-9, seed)
    assert sorted(sum(map(len, share.values())) for share in shares) == [1, 1]
    assert all(all(share.values()) for share in shares)


def test_more_nodes_than_images_are_refused() -> None:
    with pytest.raises(ValueError, match="2 training images cannot be divided among 3 nodes"):
        splits.dirichlet({"ant": files(2)}, 3, 1.0, seed=1)
