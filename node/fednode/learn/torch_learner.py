"""Tune a policy's prompts on one node's images, and measure their accuracy.

The learner is stateless between calls: prompts and optimizer state come in with the job and leave
with the report, as float32 copies. On a CPU, equal jobs give equal bits for an equal number of
threads.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.clip.captured import Captures, recorder_of
from fednode.clip.placed import fits
from fednode.core.facts import fingerprint
from fednode.core.types import MEASURE, PRIVATE, ZERO_SHOT, Job, Progress, Report, Tensors
from fednode.data.base import NodeData, Split
from fednode.data.reasons import summaries
from fednode.data.rescan import Rescan
from fednode.errors import ModelError
from fednode.learn import initial, optimizer
from fednode.learn.batch_size import BatchSize
from fednode.learn.evaluation import Evaluation, evaluation
from fednode.learn.features import Features
from fednode.learn.images import Images
from fednode.learn.learner import Cancelled
from fednode.learn.objective import Computing, Given, Leaves, Objective, said
from fednode.learn.settings import TuningSettings
from fednode.learn.training import Training, array_of, leaves

EXAMPLES = 3
EVALUATIONS = 10
"""How often a run is evaluated on test images by default."""


def named(names: Sequence[str]) -> str:
    """Return the first five names, for a sentence."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


class TorchLearner:
    """The learner of real daemons; see node/fednode/learn/learner.py for its contract."""

    def __init__(
        self,
        backbone: Backbone,
        objective: Objective,
        data: NodeData,
        settings: TuningSettings,
        features: Features,
        rescan: Rescan | None = None,
        least_images: int = 1,
    ) -> None:
        """Take the parts of a node; rescan: finds new splits if the images have changed.

        least_images: privacy.least_images, for objectives whose arrays name classes.
        """
        self.data = data
        self._least = least_images
        self._rescan = rescan
        self._backbone = backbone
        self._objective = objective
        self._settings = settings
        self._features = features
        self._images = Images(features, objective.looks, settings, objective.constant)
        self._zero_shot: Mapping[str, float] = {}
        self._said = ""
        self._size = BatchSize(settings.batch_size, backbone.device)
        self._captures = Captures(recorder_of(backbone.device))
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
        """Number of training images of this node."""
        return len(self.data.train.images)

    @property
    def told(self) -> tuple[tuple[str, ...], int]:
        """Class names and number of images without the classes of too few images.

        If the objective's arrays name no classes, all.
        """
        if not isinstance(self._objective, Computing):
            return self.classes, self.samples
        counts = Counter(image.label for image in self.data.train.images)
        enough = [at for at in range(len(self.classes)) if counts[at] >= self._least]
        return tuple(self.classes[at] for at in enough), sum(counts[at] for at in enough)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about deviations from the settings, skipped files and unknown class names."""
        data = self.data
        stale = [self._rescan.fault] if self._rescan and self._rescan.fault else []
        notes = [
            *data.notes,
            *summaries(data),
            *self._features.notes,
            *stale,
            *initial.notes(self._backbone, self._settings),
            *self._size.notes,
            *self._captures.notes,
            *filter(None, [self._said]),
        ]
        few = [name for name in self.classes if name not in self.told[0]]
        if few and getattr(self._objective, "sends_sums", False):
            notes.append(
                f"{len(few)} of {len(self.classes)} classes ({named(few)}) has fewer than "
                f"{self._least} training images: its mean is not sent (privacy.least_images)."
                if len(few) == 1
                else f"{len(few)} of {len(self.classes)} classes ({named(few)}) have fewer than "
                f"{self._least} training images: their means are not sent (privacy.least_images)."
            )
        unseen = self._backbone.unseen(self.classes)
        if unseen:
            notes.append(
                f"{len(unseen)} of {len(self.classes)} class names hold words that "
                f"no training text of {self._backbone.label} had: {named(unseen)}."
            )
        return tuple(notes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on images that make the test accuracy wrong."""
        return self.data.warnings

    @property
    def examples(self) -> Mapping[str, tuple[Path, ...]]:
        """The first training images of each class."""
        examples: dict[str, tuple[Path, ...]] = dict.fromkeys(self.classes, ())
        for image in self.data.train.images:
            name = self.classes[image.label]
            if len(examples[name]) < EXAMPLES:
                examples[name] = (*examples[name], image.path)
        return examples

    def initial(self, seed: int) -> Tensors:
        """Return the objective's initial arrays."""
        return self._objective.initial(seed)

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Run `epochs` epochs or `iterations` steps over the images, in an order of job.seed.

        A job of stage MEASURE trains nothing: the report has job.tensors and their metrics. Raise
        Cancelled if `cancelled` turns true, ModelError if the tuned arrays are not finite.
        """
        began = time.monotonic()
        if job.stage == MEASURE:
            measured = self._measure(job, job.tensors, cancelled)
            self._said = self.answers(job.tensors)
            return Report(
                tensors=job.tensors,
                metrics=measured,
                samples=self.samples,
                seconds=time.monotonic() - began,
            )
        self._look_again()
        if isinstance(self._objective, Computing):
            return self._computed(job, self._objective, began, cancelled)
        training = self._training(job)
        losses = self._train(job, training, cancelled, progress)
        tuned = Tensors({name: array_of(training.prompts[name]) for name in job.tensors})
        if not tuned.finite():
            raise ModelError(
                f"tuning diverged in round {job.round}: the loss went from {losses[0]:.4g} to "
                f"{losses[-1]:.4g}; lower tuning.lr ({self._settings.lr:g})."
            )
        metrics = {"loss": float(np.mean(losses))}
        carry = training.carry()
        if job.measure:
            own = {
                name.removeprefix(PRIVATE): array
                for name, array in carry.items()
                if name.startswith(PRIVATE)
            }
            metrics.update(self._measure(job, Tensors({**tuned, **own}), cancelled))
        return Report(
            tensors=tuned,
            metrics=metrics,
            samples=self.samples,
            carry=carry,
            seconds=time.monotonic() - began,
            steps=len(losses),
            changed=tuple(sorted(training.changed & set(job.tensors))),
        )

    def _computed(
        self, job: Job, objective: Computing, began: float, cancelled: Callable[[], bool]
    ) -> Report:
        """Return what an objective without gradients computes from the training images."""
        features, labels = self._images.features(self.data.train, cancelled)
        images = self._images.digests(self.data.train)
        computed = objective.compute(job, features, labels, self.classes, self._least, images)
        metrics = {} if computed.loss is None else {"loss": computed.loss}
        if job.measure:
            metrics.update(self._measure(job, computed.tensors, cancelled))
        return Report(
            tensors=computed.tensors,
            metrics=metrics,
            samples=self.told[1],
            carry=computed.carry,
            seconds=time.monotonic() - began,
            changed=tuple(computed.tensors),
        )

    def _training(self, job: Job) -> Training:
        """Put a job's tensors and the private arrays under an optimizer."""
        kept = self._objective.private(job.seed)
        private = {name: job.carry.get(PRIVATE + name, start) for name, start in kept.items()}
        leaves_ = self._leaves(Tensors({**job.tensors, **private}))
        prompts = {name: leaf.requires_grad_() for name, leaf in leaves_.items()}
        beside = {
            name: array for name, array in job.carry.items() if name.split("/")[0] not in prompts
        }
        given = Given(
            job,
            prompts,
            self._leaves(job.reference),
            leaves(beside, self._backbone.device),
            self.classes,
        )
        rate = optimizer.learning_rate(self._settings, job.round, job.rounds)
        descent = optimizer.build(self._settings, prompts, rate, job.carry)
        return Training(prompts, frozenset(private), self._objective.begin(given), descent)

    def _train(
        self,
        job: Job,
        training: Training,
        cancelled: Callable[[], bool],
        progress: Callable[[Progress], None],
    ) -> list[float]:
        settings = self._settings
        order = torch.Generator().manual_seed(job.seed)
        count = self.samples
        steps = settings.iterations or settings.epochs * -(-count // self._size.now)
        losses: list[list[Tensor]] = []
        shown, epoch = math.nan, 0
        while len(losses) < steps:
            epoch += 1
            shuffled = torch.randperm(count, generator=order)
            images = self._images.epoch(self.data.train, cancelled)
            left = deque(torch.split(shuffled, self._size.now)[: steps - len(losses)])
            while left and len(losses) < steps:
                if cancelled():
                    raise Cancelled
                batch = left.popleft()
                try:
                    with self._captures:
                        losses.append(training.step(images.batch(batch)))
                except torch.OutOfMemoryError as fault:
                    if self._captures.drop():
                        left.appendleft(batch)
                        continue
                    smaller = torch.split(batch, self._size.smaller(len(batch), fault))
                    left.extendleft(reversed(smaller))
                    if not settings.iterations:
                        later = (settings.epochs - epoch) * -(-count // self._size.now)
                        steps = len(losses) + len(left) + later
                    continue
                if self._backbone.device.type == "cpu":  # reading waits for no other device
                    shown = sum(map(float, losses[-1]))
                progress(Progress(len(losses), steps, shown))
        return [sum(map(float, of_step)) for of_step in losses]

    def _look_again(self) -> None:
        """Use new splits if images were added or deleted since the last round."""
        fresh = self._rescan.look() if self._rescan else None
        if fresh is not None:
            self.data, self._zero_shot = fresh, {}
            self._images.forget()
            self._features.keep_only(fresh.files)
            self._captures.forget()

    def _measure(
        self, job: Job, tuned: Tensors, cancelled: Callable[[], bool]
    ) -> Mapping[str, float]:
        metrics: dict[str, float] = {}
        if self.data.validation.images:
            scored = self._score(self.data.validation, tuned, cancelled)
            metrics["validation"], metrics["validation_loss"] = scored
        if job.measure and self._due(job):
            metrics.update(self.evaluate(tuned, cancelled))
            if not self._zero_shot:
                self._zero_shot = self.evaluate(Tensors(), cancelled)
            metrics.update({ZERO_SHOT + name: value for name, value in self._zero_shot.items()})
        return metrics

    def _due(self, job: Job) -> bool:
        """Tell whether a round is evaluated on test images (tuning.evaluate_every)."""
        every = self._settings.evaluate_every
        last = bool(job.rounds) and job.round >= job.rounds
        if every is None:
            every = -(-job.rounds // EVALUATIONS) or EVALUATIONS
            return last or job.round == 1 or job.round % every == 0
        return last or (every > 0 and job.round % every == 0)

    def evaluate(self, tensors: Tensors, cancelled: Callable[[], bool]) -> Mapping[str, float]:
        """Return accuracies (0..1) on own, base and new test images, if there are any.

        Empty tensors mean the hand-written prompt (zero-shot).
        """
        return {
            name: self._score(split, tensors, cancelled)[0] for name, split in self._tests().items()
        }

    def answers(self, tensors: Tensors) -> str:
        """Return which classifier answers for the node's own classes; "" if there is only one."""
        return said(self._objective, self._leaves(tensors), self.classes)

    def results(self, tensors: Tensors) -> Mapping[str, Evaluation]:
        """Return the results by class on the same test images that `evaluate` uses."""
        by_test = {}
        for name, split in self._tests().items():
            logits, labels = self._logits(split, tensors, lambda: False)
            shares = logits.double().softmax(dim=1).cpu().numpy()  # float32 rounds many to 1
            by_test[name] = evaluation(split.classes, labels.cpu().numpy(), shares)
        return by_test

    def beside(self, objective: Objective) -> TorchLearner:
        """Return a learner of the same images with another objective, which shares the features."""
        return TorchLearner(self._backbone, objective, self.data, self._settings, self._features)

    @property
    def frozen(self) -> Backbone:
        """The frozen model."""
        return self._backbone

    def _tests(self) -> Mapping[str, Split]:
        """Return the test images by name, as far as there are any."""
        splits = {"own": self.data.own, "base": self.data.base, "new": self.data.new}
        return {name: split for name, split in splits.items() if split is not None and split.images}

    def _score(
        self, split: Split, tensors: Tensors, cancelled: Callable[[], bool]
    ) -> tuple[float, float]:
        """Return accuracy (0..1) and mean cross-entropy of prompts on labelled images."""
        logits, labels = self._logits(split, tensors, cancelled)
        right = float((logits.argmax(dim=1) == labels).float().mean())
        return right, float(F.cross_entropy(logits, labels))

    @torch.no_grad()
    def _logits(
        self, split: Split, tensors: Tensors, cancelled: Callable[[], bool]
    ) -> tuple[Tensor, Tensor]:
        if not tensors:
            features, labels = self._images.features(split, cancelled)
            return self._objective.zero_shot(features, split.classes), labels
        with fits(self._backbone.device, "while it classifies images"):
            classify = self._objective.classifier(self._leaves(tensors), split.classes)
            answered = [
                (classify(batch), batch.truth) for batch in self._images.in_order(split, cancelled)
            ]
        return torch.cat([logits for logits, _ in answered]), torch.cat(
            [truth for _, truth in answered]
        )

    def _leaves(self, tensors: Tensors) -> Leaves:
        return leaves(tensors, self._backbone.device)
