"""Results by class, for people."""

from __future__ import annotations

import numpy as np

from fednode.evaluation.results import evaluation
from fednode.terminal import classwise


def test_eval_of_many_classes_shows_the_worst_and_the_most_frequent_mistakes() -> None:
    names = [f"class {at}" for at in range(30)]
    truth = [at for at in range(30) for _ in range(4)]
    shares = np.eye(30)[truth]
    shares[4 * 7 : 4 * 7 + 3] = np.eye(30)[8]  # three images of class 7 are taken for class 8
    shares[0] = np.eye(30)[29]
    alone = evaluation(names, truth, np.eye(30)[[0] * len(truth)])  # only class 0 is right
    lines = classwise.text("new", evaluation(names, truth, shares), {"alone": alone})
    assert "(alone: the sensitivity)" in lines[0]
    assert "the 20 classes of the lowest sensitivity" in lines[0]
    assert lines[2].split() == ["8", "class", "7", "4", "25.0", "5-70", "0.0", "100.0", "62.5"]
    assert lines[3].split()[:7] == ["1", "class", "0", "4", "75.0", "30-95", "100.0"]
    assert lines[22].startswith("mean of 30 classes")
    assert lines[-3:] == [
        "Most frequent mistakes, 2 of 2 kinds:",
        "       3  class 7 predicted as class 8",
        "       1  class 0 predicted as class 29",
    ]
