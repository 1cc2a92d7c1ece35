"""The covariance of built-in images, without those of the node itself."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.data import builtin
from fednode.learn import public
from fednode.learn.features import Features
from fednode.learn.public import public_covariance, public_images
from fednode.testing.learners import never
from tests.unit.policies.tiny import frozen


@pytest.fixture(autouse=True)
def some_of_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all classes here; few images of each, because they are encoded again and again."""
    monkeypatch.setattr(public, "public_images", public_images)
    monkeypatch.setattr(public, "IMAGES", 2)


def test_it_is_that_of_images_about_their_class_s_mean() -> None:
    features = Features(frozen())
    folders = sorted(one for one in builtin.root().iterdir() if one.is_dir())
    expected, free = np.zeros((16, 16)), 0
    for folder in folders:
        paths = sorted(folder.glob("*.jpg"))[: public.IMAGES]
        x = features.of(paths, never).features.double().numpy()
        expected += (x - x.mean(axis=0)).T @ (x - x.mean(axis=0))
        free += len(x) - 1
    found = public_covariance(features, 16, (), never)
    assert np.allclose(found, expected / free, atol=1e-12)


def test_images_of_the_node_do_not_count_and_progress_names_public_ones() -> None:
    told = list[tuple[str, int, int]]()
    features = Features(
        frozen(), progress=lambda name, done, count: told.append((name, done, count))
    )
    every = sorted(builtin.root().glob("*/*.jpg"))
    first = [path for path in every if path.parent == every[0].parent]
    whole = public_covariance(features, 16, (), never)
    assert told[0] == ("encoding public images", 0, 50 * public.IMAGES)
    assert not np.allclose(public_covariance(features, 16, first[: public.IMAGES], never), whole)
    assert np.array_equal(public_covariance(features, 16, first[public.IMAGES :], never), whole)
    assert np.array_equal(public_covariance(features, 16, every, never), np.eye(16) / 16)
    assert len(every) >= public.IMAGES * 50
