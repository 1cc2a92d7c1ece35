"""How much of what a node tells gives away who was trained on: membership inference, measured.

The adversary is a member of the mesh. It hears what each node began a round from and what it told
after tuning, holds candidate images with their labels, and asks of each whether it was among the
node's client shots. Two attacks, each a number per image that is higher for members:

    loss    minus the image's loss under what the node told last (Yeom et al., CSF 2018)
    drop    by how much the node's own tuning lowered the image's loss, summed over all rounds: what
            everyone began the round from makes easy and hard images alike

Members are a node's training images, non-members as many test images of each of its classes as
there are of the rarest. Neither attack trains anything; stronger ones exist, so the figures are a
lower bound of what leaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
import numpy.typing as npt

from fednode.core.types import MEASURE, Job, Progress, Report, Tensors
from fednode.data.base import Split
from fednode.errors import FednodeError
from fednode.lab.experiment.scores import ATTACKS, FALSE_ALARMS
from fednode.learn.learner import Learner
from fednode.learn.torch_learner import TorchLearner

Numbers = npt.NDArray[np.float64]


class Overheard:
    """A learner with an adversary that hears each of its results, and each job's start."""

    def __init__(self, told: Learner, inner: TorchLearner, tested: Split) -> None:
        """Told: what the daemon trains with, noise and all; inner: it judges single images.

        tested: images that it was not trained on, from where its own are. Raise FednodeError where
        they lack a class.
        """
        self._told, self._inner = told, inner
        self._members = inner.data.train
        self._others = candidates(self._members, tested)
        self._whole = frozenset(inner.initial(0))
        self._drop: tuple[Numbers, Numbers] = (np.zeros(1), np.zeros(1))
        self._last = self._drop

    def __getattr__(self, name: str) -> object:
        return getattr(self._told, name)

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Return the learner's own report, unchanged."""
        if job.stage == MEASURE:  # tells nobody anything
            return self._told.tune(job, cancelled, progress)
        if frozenset(job.tensors) != self._whole:
            raise FednodeError(
                "leak is true, and membership inference takes a policy whose nodes tune all "
                "exchanged prompts at once: local, zerodfl, promptfl, fedmaple, fedclip, fedtpg, "
                "fedotp, fedpgp, trip."
            )
        report = self._told.tune(job, cancelled, progress)
        before, after = self._losses(job.tensors), self._losses(report.tensors)
        self._drop = (
            self._drop[0] + before[0] - after[0],
            self._drop[1] + before[1] - after[1],
        )
        self._last = (-after[0], -after[1])
        return report

    def figures(self) -> dict[str, float]:
        """Return, for each attack, its AUC and how many members it finds at few false alarms."""
        figures: dict[str, float] = {}
        for name, (members, others) in zip(ATTACKS, (self._last, self._drop), strict=True):
            figures[f"{name}_auc"] = auc(members, others)
            figures[f"{name}_found"] = found_at(members, others, FALSE_ALARMS)
        return figures

    def _losses(self, tensors: Tensors) -> tuple[Numbers, Numbers]:
        return (
            self._inner.losses(self._members, tensors).astype(np.float64),
            self._inner.losses(self._others, tensors).astype(np.float64),
        )


def candidates(members: Split, tested: Split) -> Split:
    """Return non-members: of each class as many of the images tested as of the rarest."""
    counts = [
        sum(tested_image.label == at for tested_image in tested.images)
        for at in range(len(members.classes))
    ]
    if tested.classes != members.classes or not all(counts):
        raise FednodeError(
            "leak is true, and a node lacks test images of some of its own classes to compare its "
            "training images with; set data.test above 0 in an in-domain or base-to-new protocol."
        )
    taken = Counter[int]()
    images = []
    for image in tested.images:
        if taken[image.label] < min(counts):
            taken[image.label] += 1
            images.append(image)
    return replace(tested, images=tuple(images))


def auc(members: Numbers, others: Numbers) -> float:
    """Return how often a member scores above a non-member, ties counted half: 0.5 is chance."""
    ahead = members[:, None] - others[None, :]
    return float((ahead > 0).mean() + 0.5 * (ahead == 0).mean())


def found_at(members: Numbers, others: Numbers, false_alarms: float) -> float:
    """Return the share of members above the score that this share of non-members exceeds."""
    allowed = int(false_alarms * len(others))
    threshold = np.sort(others)[::-1][min(allowed, len(others) - 1)]
    return float((members > threshold).mean())


def mean_of(nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean over nodes of each figure."""
    return {name: fmean(node[name] for node in nodes) for name in nodes[0]}
