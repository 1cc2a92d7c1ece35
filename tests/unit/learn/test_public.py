"""The covariance of built-in images, without those of the node itself."""

from __future__ import annotations

import numpy as np

from fednode.data import builtin
from fednode.learn import public
from fednode.learn.features import Features
from fednode.learn.public import public_covariance
from fednode.testing.learners import never
from tests.unit.policies.tiny import frozen


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


def test_images_of_the_node_do_not_count() -> None:
    features = Features(frozen())
    every = sorted(builtin.root().glob("*/*.jpg"))
    first = [path for path in every if path.parent == every[0].parent]
    whole = public_covariance(features, 16, (), never)
    assert not np.allclose(public_covariance(features, 16, first[: public.IMAGES], never), whole)
    assert np.array_equal(public_covariance(features, 16, first[public.IMAGES :], never), whole)
    assert np.array_equal(public_covariance(features, 16, every, never), np.eye(16) / 16)
    assert len(every) >= public.IMAGES * 50
