"""Splits are disjoint, complete, deterministic and independent of the file system's order."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fednode.data import splits
from fednode.lab.experiment.scene import client_blocks

names = st.lists(st.text("abc_é09", min_size=1, max_size=4), min_size=2, max_size=40, unique=True)
files = names.map(lambda found: [Path(f"/data/{name}.jpg") for name in found])
shares = st.floats(0.0, 0.99)
seeds = st.integers(0, 2**31)
pools = st.dictionaries(st.text("abc", min_size=1, max_size=3), files, min_size=1, max_size=6)


@given(files, shares, st.randoms(use_true_random=False))
def test_test_split_is_disjoint_complete_and_independent_of_order(
    paths: list[Path], share: float, shuffler: object
) -> None:
    test = splits.draw_test(paths, "ant", share)
    assert len(test) == len(set(test)) < len(paths)
    assert set(test) < set(paths)
    assert bool(test) == (share > 0.0)
    assert splits.draw_test(paths[::-1], "ant", share) == test
    mixed = list(paths)
    shuffler.shuffle(mixed)  # type: ignore[attr-defined]
    assert splits.draw_test(mixed, "ant", share) == test


@given(files, seeds, shares)
def test_validation_leaves_an_image_to_train_on(
    paths: list[Path], seed: int, validation: float
) -> None:
    order = splits.shuffle(paths, "ant", seed)
    assert order == splits.shuffle(paths[::-1], "ant", seed)
    assert sorted(order) == sorted(paths)
    kept = splits.draw_validation(order, validation)
    assert order[: len(order) - len(kept)] + kept == order
    assert len(kept) < len(order)
    assert bool(kept) == (validation > 0.0)


@given(files, st.floats(0.05, 0.95), st.floats(0.05, 0.95), seeds)
def test_an_image_that_is_added_renamed_or_copied_moves_no_other(
    paths: list[Path], share: float, validation: float, seed: int
) -> None:
    """Only an image that fills a part that would be empty may move, and its neighbour with it."""

    def parts(paths: list[Path], digests: dict[Path, str]) -> dict[str, str]:
        units = [digests[path] for path in paths]
        tested = splits.held_out([units], share, lambda unit: splits.place(unit, 0, "test"))
        test = [path for path in paths if digests[path] in tested]
        rest = [path for path in paths if digests[path] not in tested]
        assert test
        assert rest
        units = [digests[path] for path in rest]
        last = splits.held_out(
            [units], validation, lambda unit: 1 - splits.place(unit, seed, "train")
        )
        kept = [path for path in rest if digests[path] in last]
        train = [path for path in rest if digests[path] not in last]
        assert train
        assert sorted([*train, *kept, *test]) == sorted(paths)
        named = {"test": test, "train": train, "validation": kept}
        return {digests[path]: name for name, held in named.items() for path in held}

    def sound(digests: dict[Path, str]) -> bool:
        tested = {path: splits.place(unit, 0, "test") for path, unit in digests.items()}
        kept = {
            1 - splits.place(digests[path], seed, "train") < validation
            for path in digests
            if tested[path] >= share
        }
        return len({tested[path] < share for path in digests}) == len(kept) == 2

    digests = {path: path.stem for path in paths}
    after = parts(paths, digests)
    renamed = {path.with_name(f"0{path.name}"): digest for path, digest in digests.items()}
    assert parts(list(renamed), renamed) == after
    if len(paths) > 2:
        held = dict(list(digests.items())[:-1])
        before = parts(list(held), held)
        moved = [digest for digest, part in before.items() if after[digest] != part]
        assert len(moved) <= 2
        assert not moved or not sound(held)
    if sound(digests):
        copy = Path("/data/copy.jpg")
        assert parts([*paths, copy], {**digests, copy: paths[0].stem}) == after


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), min_size=1, max_size=4),
    st.floats(0.0, 0.99),
    seeds,
)
def test_no_group_is_divided_and_every_class_trains(
    classes: list[list[str]], share: float, seed: int
) -> None:
    """A group, such as a patient, may have images of several classes."""

    def place(unit: str) -> float:
        return splits.place(unit, seed, "test")

    kept = splits.held_out(classes, share, place)
    assert kept <= {unit for units in classes for unit in units}
    assert all(set(units) - kept for units in classes if units)
    assert bool(kept) <= (share > 0.0)
    assert kept == splits.held_out([units[::-1] for units in classes], share, place)
    apart = all(len([units for units in classes if unit in units]) == 1 for unit in "abcdefgh")
    if share and apart:
        assert all(kept & set(units) for units in classes if len(set(units)) > 1)


@given(st.integers(1, 400).flatmap(lambda m: st.tuples(st.just(m), st.integers(1, m))))
def test_blocks_are_consecutive_and_complete(sizes: tuple[int, int]) -> None:
    classes, count = sizes
    even = classes // count
    for blocks, size, least in (
        (client_blocks(classes, 2 * count), 2 * count, 1),
        (splits.blocks(classes, count, even), even, even),
    ):
        assert [label for block in blocks for label in block] == list(range(classes))
        assert all(len(block) == size for block in blocks[:-1])
        assert len(blocks[-1]) >= least


@given(pools, st.floats(1e-3, 1e3), seeds, st.data())
def test_dirichlet_shares_are_disjoint_complete_and_never_empty(
    found: dict[str, list[Path]], alpha: float, seed: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, sum(map(len, found.values()))))
    dealt = splits.dirichlet(found, count, alpha, seed)
    assert len(dealt) == count
    assert all(share and all(share.values()) for share in dealt)
    for name, paths in found.items():
        assert sorted(path for share in dealt for path in share.get(name, ())) == sorted(paths)
    backwards = dict(reversed(list(found.items())))
    assert splits.dirichlet(backwards, count, alpha, seed) == dealt
