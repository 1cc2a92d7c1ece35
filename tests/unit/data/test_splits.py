"""Splits against small cases worked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.data import splits


def files(count: int) -> list[Path]:
    return [Path(f"/data/{number:03d}.jpg") for number in range(count)]


def test_base_half_is_the_larger_one() -> None:
    assert splits.halves(["c", "a", "b"]) == (("c", "a"), ("b",))


@pytest.mark.parametrize(
    ("count", "share", "tested"), [(20, 0.2, 4), (3, 0.01, 1), (3, 0.99, 2), (3, 0.0, 0)]
)
def test_each_side_of_a_test_split_has_an_image(count: int, share: float, tested: int) -> None:
    assert len(splits.draw_test(files(count), "ant", share)) == tested


def test_draws_are_the_same_on_every_machine() -> None:
    """Pinned: nodes on different platforms must agree on who holds what."""
    test = splits.draw_test(files(10), "ant", 0.2)
    order = splits.shuffle([path for path in files(10) if path not in test], "ant", seed=1)
    assert [path.stem for path in test] == ["003", "004"]
    assert [path.stem for path in order] == ["005", "009", "008", "000", "002", "006", "007", "001"]
    shares = splits.dirichlet({"ant": order}, count=3, alpha=0.5, seed=1)
    assert [len(share.get("ant", ())) for share in shares] == [6, 1, 1]


def test_order_depends_on_seed_and_class() -> None:
    orders = {splits.shuffle(files(20), name, seed) for name in ("ant", "bee") for seed in (1, 2)}
    assert len(orders) == 4


@pytest.mark.parametrize(
    ("count", "share", "kept"), [(20, 0.25, 5), (1, 0.5, 0), (2, 0.01, 1), (9, 0.0, 0)]
)
def test_the_last_images_validate(count: int, share: float, kept: int) -> None:
    order = splits.shuffle(files(count), "ant", seed=1)
    assert splits.draw_validation(order, share) == order[count - kept :]


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
