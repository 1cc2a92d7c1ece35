"""The choice of ratio and temperature, against torch's cross-entropy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fednode.learn.ratio import HEATS, RATIOS, Choice, best, log_loss, losses


def test_the_table_holds_the_mean_loss_of_every_ratio_and_temperature() -> None:
    draw = np.random.default_rng(1)
    gauss, written, labels = draw.normal(size=(9, 4)), draw.normal(size=(9, 4)), np.arange(9) % 4
    table = losses(gauss, written, labels)
    assert table.shape == (len(RATIOS), len(HEATS))
    for row, ratio in enumerate(RATIOS):
        for column, heat in enumerate(HEATS):
            logits = torch.from_numpy((gauss + ratio * written) / heat)
            expected = float(F.cross_entropy(logits, torch.from_numpy(labels)))
            assert table[row, column] == pytest.approx(expected, abs=1e-12)


def test_huge_logits_give_finite_losses() -> None:
    assert np.isfinite(log_loss(np.array([[1e4, -1e4]]), np.array([1]))).all()


def test_the_part_that_is_right_is_chosen() -> None:
    labels = np.arange(12) % 3
    right, wrong = 5.0 * np.eye(3)[labels], 5.0 * np.eye(3)[(labels + 1) % 3]
    assert best(losses(right, wrong, labels)).ratio == 0.0
    assert best(losses(wrong, right, labels)).ratio > 1.0
    assert best(np.zeros((7, 17))) == Choice(RATIOS[0], HEATS[0])


def test_ratios_and_temperatures_are_those_whose_places_nodes_send() -> None:
    assert RATIOS == (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    assert pytest.approx([2.0 ** (-2 + at / 2) for at in range(17)]) == HEATS
