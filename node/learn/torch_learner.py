"""Tune a policy's prompts on one node's images, and measure what they are worth.

Stateless between calls: prompts and optimizer state come in with the job and leave with the report,
as float32 copies. On a CPU equal jobs give equal bits for an equal number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from node.clip.backbone import Backbone
from node.core.facts import fingerprint
from node.core.types import Job, Progress, Report, Tensors
from node.data.base import NodeData, Split
from node.data.rescan import Rescan
from node.errors import ModelError
from node.learn import optimizer
from node.learn.features import Features
from node.learn.learner import Cancelled
from node.learn.objective import Objective
from node.learn.settings import TuningSettings

ZERO_SHOT = "zero_shot_"
"""Prefix of the hand-written prompt's accuracies among the metrics of an evaluated round."""


def leaves(tensors: Tensors, device: torch.device) -> dict[str, Tensor]:
    """Return copies of arrays as float32 tensors on a device."""
    return {name: torch.tensor(array, device=device) for name, array in tensors.items()}


def _drawn(views: Tensor, order: torch.Generator) -> Tensor:
    """Return features [n, D], for each image one of its K views [K, n, D]."""
    if len(views) == 1:
        return views[0]
    chosen = torch.randint(len(views), views.shape[1:2], generator=order).to(views.device)
    return views[chosen, torch.arange(views.shape[1], device=views.device)]


class TorchLearner:
    """The learner of real daemons; see node/learn/learner.py for its contract."""

    def __init__(
        self,
        backbone: Backbone,
        objective: Objective,
        data: NodeData,
        settings: TuningSettings,
        features: Features,
        rescan: Rescan | None = None,
    ) -> None:
        """Take the parts of a node; rescan: gives new splits where the images have changed."""
        self.data = data
        self._rescan = rescan
        self._backbone = backbone
        self._objective = objective
        self._settings = settings
        self._features = features
        # What a split became is known until the images change.
        self._splits: dict[str, tuple[Tensor, Tensor]] = {}
        self._zero_shot: Mapping[str, float] = {}
        self._shapes = objective.initial(0).shapes

    @property
    def schema(self) -> str:
        """Digest of the exchanged arrays' names, shapes and dtype."""
        shapes = {name: str(shape) for name, shape in self._shapes.items()}
        return fingerprint({**shapes, "dtype": "float32"})

    @property
    def backbone(self) -> str:
        """Fingerprint of the frozen model and its preprocessing."""
        return self._backbone.fingerprint

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the node's own classes."""
        return self.data.train.classes

    @property
    def samples(self) -> int:
        """Training images of this node."""
        return len(self.data.train.images)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what was done otherwise than asked, what was skipped, and which names are unknown."""
        data = self.data
        stale = [self._rescan.fault] if self._rescan and self._rescan.fault else []
        notes = [*data.notes, *self._backbone.notes, *self._features.notes, *stale]
        if data.skipped:
            path, why = data.skipped[0]
            count = len(data.skipped)
            more = f" and {count - 1} more files" if count > 1 else ""
            notes.append(f"'{path}'{more} skipped: {why}; `fednode check` lists all.")
        unseen = self._backbone.unseen(self.classes)
        if unseen:
            shown = ", ".join(unseen[:5]) + (", ..." if len(unseen) > 5 else "")
            notes.append(
                f"{len(unseen)} of {len(self.classes)} class names have words that "
                f"{self._backbone.label} never met in pretraining: {shown}."
            )
        return tuple(notes)

    def initial(self, seed: int) -> Tensors:
        """Return the objective's start."""
        return self._objective.initial(seed)

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Run `epochs` epochs over the training images in an order drawn from job.seed."""
        began = time.monotonic()
        self._look_again()
        settings = self._settings
        prompts = {name: leaf.requires_grad_() for name, leaf in self._leaves(job.tensors).items()}
        reference = self._leaves(job.reference)
        views, labels = self._views(cancelled)
        rate = optimizer.learning_rate(settings, job.round, job.rounds)
        descent = optimizer.build(settings, prompts, rate, job.carry)
        order = torch.Generator().manual_seed(job.seed)
        steps_per_epoch = -(-len(labels) // settings.batch_size)
        steps = settings.epochs * steps_per_epoch
        losses: list[float] = []
        for _ in range(settings.epochs):
            shuffled = torch.randperm(len(labels), generator=order).to(labels.device)
            features = _drawn(views, order)
            for batch in torch.split(shuffled, settings.batch_size):
                if cancelled():
                    raise Cancelled
                loss = self._objective.loss(
                    prompts, reference, features[batch], labels[batch], self.classes
                )
                descent.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                descent.step()
                losses.append(float(loss.detach()))
                progress(Progress(len(losses), steps, losses[-1]))
        tuned = Tensors({name: leaf.detach().cpu().numpy() for name, leaf in prompts.items()})
        if not tuned.finite():
            raise ModelError(
                f"tuning diverged in round {job.round}: the loss went from {losses[0]:.4g} to "
                f"{losses[-1]:.4g}; lower tuning.lr ({settings.lr:g})."
            )
        metrics = {"loss": float(np.mean(losses)), **self._measure(job, tuned, cancelled)}
        return Report(
            tuned,
            metrics,
            self.samples,
            carry=optimizer.carried(descent, prompts),
            seconds=time.monotonic() - began,
            steps=steps,
        )

    def _look_again(self) -> None:
        """Take images that came or went since the last round."""
        fresh = self._rescan.look() if self._rescan else None
        if fresh is not None:
            self.data, self._zero_shot = fresh, {}
            self._splits.clear()

    def _measure(
        self, job: Job, tuned: Tensors, cancelled: Callable[[], bool]
    ) -> Mapping[str, float]:
        every = self._settings.evaluate_every
        metrics: dict[str, float] = {}
        if self.data.validation.images:
            metrics["validation"] = self._accuracy(
                "validation", self.data.validation, tuned, cancelled
            )
        if (job.rounds and job.round >= job.rounds) or (every and job.round % every == 0):
            metrics.update(self.evaluate(tuned, cancelled))
            if not self._zero_shot:
                self._zero_shot = self.evaluate(Tensors(), cancelled)
            metrics.update({ZERO_SHOT + name: one for name, one in self._zero_shot.items()})
        return metrics

    def evaluate(self, tensors: Tensors, cancelled: Callable[[], bool]) -> Mapping[str, float]:
        """Return accuracy (0..1) on own, base and new test images, where there are any.

        Empty tensors stand for the hand-written prompt (zero-shot).
        """
        splits = {"own": self.data.own, "base": self.data.base, "new": self.data.new}
        return {
            name: self._accuracy(name, split, tensors, cancelled)
            for name, split in splits.items()
            if split is not None and split.images
        }

    def _accuracy(
        self, name: str, split: Split, tensors: Tensors, cancelled: Callable[[], bool]
    ) -> float:
        features, labels = self._split(name, split, cancelled)
        logits = self._logits(tensors, features, split.classes)
        return float((logits.argmax(dim=1) == labels).float().mean())

    @torch.no_grad()
    def _logits(self, tensors: Tensors, features: Tensor, classes: tuple[str, ...]) -> Tensor:
        if not tensors:
            return self._objective.zero_shot(features, classes)
        return self._objective.logits(self._leaves(tensors), {}, features, classes)

    def _views(self, cancelled: Callable[[], bool]) -> tuple[Tensor, Tensor]:
        """Return features [K, n, D] of the training images, K views of each, and labels [n]."""
        if "train" not in self._splits:
            numbers = range(1, 1 + self._settings.views) or (0,)
            drawn = [self._encoded(self.data.train, cancelled, number) for number in numbers]
            self._splits["train"] = (torch.stack([one for one, _ in drawn]), drawn[0][1])
        return self._splits["train"]

    def _split(
        self, name: str, split: Split, cancelled: Callable[[], bool]
    ) -> tuple[Tensor, Tensor]:
        if name not in self._splits:
            self._splits[name] = self._encoded(split, cancelled)
        return self._splits[name]

    def _encoded(
        self, split: Split, cancelled: Callable[[], bool], view: int = 0
    ) -> tuple[Tensor, Tensor]:
        features = self._features.of([image.path for image in split.images], cancelled, view)
        labels = torch.tensor([image.label for image in split.images], device=features.device)
        return features, labels

    def _leaves(self, tensors: Tensors) -> dict[str, Tensor]:
        return leaves(tensors, self._backbone.device)
