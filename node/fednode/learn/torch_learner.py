"""Tune a policy's prompts on one node's images, and measure their accuracy.

The learner is stateless between calls: prompts and optimizer state come in with the job and leave
with the report, as float32 copies. On a CPU, equal jobs give equal bits for an equal number of
threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.core.facts import fingerprint
from fednode.core.types import MEASURE, PRIVATE, ZERO_SHOT, Array, Job, Progress, Report, Tensors
from fednode.data.base import NodeData, Split
from fednode.data.reasons import summaries
from fednode.data.rescan import Rescan
from fednode.errors import ModelError
from fednode.learn import optimizer
from fednode.learn.evaluation import Evaluation, evaluation
from fednode.learn.features import Features
from fednode.learn.images import Images
from fednode.learn.learner import Cancelled
from fednode.learn.objective import Batch, Given, InTurns, Objective, Tuning
from fednode.learn.settings import TuningSettings

EXAMPLES = 3
EVALUATIONS = 10
"""How often a run is evaluated on test images by default."""


def leaves(tensors: Mapping[str, Array], device: torch.device) -> dict[str, Tensor]:
    """Return copies of arrays as float32 tensors on a device."""
    return {name: torch.tensor(array, device=device) for name, array in tensors.items()}


def _array(leaf: Tensor) -> Array:
    copied: Array = leaf.detach().cpu().numpy()
    return copied


class _Training:
    """A job and its optimizer. changed: names of prompts that had a gradient in some step."""

    def __init__(
        self,
        prompts: Mapping[str, Tensor],
        private: frozenset[str],
        tuning: Tuning,
        descent: torch.optim.Optimizer,
    ) -> None:
        self.prompts = prompts
        self.changed: set[str] = set()
        self._private = private
        self._tuning = tuning
        self._descent = descent

    def step(self, batch: Batch) -> float:
        """Take a step for each loss of a batch; return the sum of the losses."""
        tuning, total = self._tuning, 0.0
        for loss in tuning.losses(batch) if isinstance(tuning, InTurns) else [tuning.loss(batch)]:
            self._descent.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            # Optimizers skip parameters without a gradient: no momentum and no decay either.
            self.changed |= {name for name, leaf in self.prompts.items() if leaf.grad is not None}
            self._descent.step()
            total += float(loss.detach())
        tuning.stepped()
        return total

    def carry(self) -> Tensors:
        """Return optimizer state, private prompts and the objective's carry."""
        own = {PRIVATE + name: _array(self.prompts[name]) for name in self._private}
        more = {name: _array(one) for name, one in self._tuning.carry().items()}
        return Tensors({**optimizer.carried(self._descent, self.prompts), **own, **more})


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
    ) -> None:
        """Take the parts of a node; rescan: finds new splits if the images have changed."""
        self.data = data
        self._rescan = rescan
        self._backbone = backbone
        self._objective = objective
        self._settings = settings
        self._features = features
        self._images = Images(features, objective.looks, settings, objective.constant)
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
        """Number of training images of this node."""
        return len(self.data.train.images)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about deviations from the settings, skipped files and unknown class names."""
        data = self.data
        stale = [self._rescan.fault] if self._rescan and self._rescan.fault else []
        notes = [
            *data.notes,
            *summaries(data),
            *self._backbone.notes,
            *self._features.notes,
            *stale,
        ]
        unseen = self._backbone.unseen(self.classes)
        if unseen:
            shown = ", ".join(unseen[:5]) + (", ..." if len(unseen) > 5 else "")
            notes.append(
                f"{len(unseen)} of {len(self.classes)} class names hold words that "
                f"no training text of {self._backbone.label} had: {shown}."
            )
        return tuple(notes)

    @property
    def examples(self) -> Mapping[str, tuple[Path, ...]]:
        """The first training images of each class."""
        found: dict[str, tuple[Path, ...]] = dict.fromkeys(self.classes, ())
        for image in self.data.train.images:
            name = self.classes[image.label]
            if len(found[name]) < EXAMPLES:
                found[name] = (*found[name], image.path)
        return found

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
            found = self._measure(job, job.tensors, cancelled)
            return Report(
                tensors=job.tensors,
                metrics=found,
                samples=self.samples,
                seconds=time.monotonic() - began,
            )
        self._look_again()
        training = self._training(job)
        losses = self._train(job, training, cancelled, progress)
        tuned = Tensors({name: _array(training.prompts[name]) for name in job.tensors})
        if not tuned.finite():
            raise ModelError(
                f"tuning diverged in round {job.round}: the loss went from {losses[0]:.4g} to "
                f"{losses[-1]:.4g}; lower tuning.lr ({self._settings.lr:g})."
            )
        metrics = {"loss": float(np.mean(losses))}
        carry = training.carry()
        if job.measure:
            own = {
                name.removeprefix(PRIVATE): one
                for name, one in carry.items()
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

    def _training(self, job: Job) -> _Training:
        """Put a job's tensors and the private arrays under an optimizer."""
        kept = self._objective.private(job.seed)
        private = {name: job.carry.get(PRIVATE + name, one) for name, one in kept.items()}
        leaves_ = self._leaves(Tensors({**job.tensors, **private}))
        prompts = {name: leaf.requires_grad_() for name, leaf in leaves_.items()}
        beside = {name: one for name, one in job.carry.items() if name.split("/")[0] not in prompts}
        given = Given(
            job,
            prompts,
            self._leaves(job.reference),
            leaves(beside, self._backbone.device),
            self.classes,
        )
        rate = optimizer.learning_rate(self._settings, job.round, job.rounds)
        descent = optimizer.build(self._settings, prompts, rate, job.carry)
        return _Training(prompts, frozenset(private), self._objective.begin(given), descent)

    def _train(
        self,
        job: Job,
        training: _Training,
        cancelled: Callable[[], bool],
        progress: Callable[[Progress], None],
    ) -> list[float]:
        settings = self._settings
        order = torch.Generator().manual_seed(job.seed)
        count = self.samples
        steps = settings.iterations or settings.epochs * -(-count // settings.batch_size)
        losses: list[float] = []
        while len(losses) < steps:
            shuffled = torch.randperm(count, generator=order)
            images = self._images.epoch(self.data.train, order, cancelled)
            for batch in torch.split(shuffled, settings.batch_size)[: steps - len(losses)]:
                if cancelled():
                    raise Cancelled
                losses.append(training.step(images.batch(batch)))
                progress(Progress(len(losses), steps, losses[-1]))
        return losses

    def _look_again(self) -> None:
        """Use new splits if images were added or deleted since the last round."""
        fresh = self._rescan.look() if self._rescan else None
        if fresh is not None:
            self.data, self._zero_shot = fresh, {}
            self._images.forget()

    def _measure(
        self, job: Job, tuned: Tensors, cancelled: Callable[[], bool]
    ) -> Mapping[str, float]:
        metrics: dict[str, float] = {}
        if self.data.validation.images:
            found = self._score(self.data.validation, tuned, cancelled)
            metrics["validation"], metrics["validation_loss"] = found
        if job.measure and self._due(job):
            metrics.update(self.evaluate(tuned, cancelled))
            if not self._zero_shot:
                self._zero_shot = self.evaluate(Tensors(), cancelled)
            metrics.update({ZERO_SHOT + name: one for name, one in self._zero_shot.items()})
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

    def results(self, tensors: Tensors) -> Mapping[str, Evaluation]:
        """Return the results by class on the same test images that `evaluate` uses."""
        found = {}
        for name, split in self._tests().items():
            logits, labels = self._logits(split, tensors, lambda: False)
            shares = logits.double().softmax(dim=1).cpu().numpy()  # float32 rounds many to 1
            found[name] = evaluation(split.classes, labels.cpu().numpy(), shares)
        return found

    def _tests(self) -> Mapping[str, Split]:
        """Return the test images by name, as far as there are any."""
        splits = {"own": self.data.own, "base": self.data.base, "new": self.data.new}
        return {name: one for name, one in splits.items() if one is not None and one.images}

    def _score(
        self, split: Split, tensors: Tensors, cancelled: Callable[[], bool]
    ) -> tuple[float, float]:
        """Return accuracy (0..1) and mean cross-entropy of prompts on labelled images."""
        logits, labels = self._logits(split, tensors, cancelled)
        right = float((logits.argmax(dim=1) == labels).float().mean())
        return right, float(F.cross_entropy(logits, labels))

    def losses(self, split: Split, tensors: Tensors) -> Array:
        """Return the cross-entropy [n] of each image of a split under given prompts."""
        logits, labels = self._logits(split, tensors, lambda: False)
        return _array(F.cross_entropy(logits, labels, reduction="none"))

    @torch.no_grad()
    def _logits(
        self, split: Split, tensors: Tensors, cancelled: Callable[[], bool]
    ) -> tuple[Tensor, Tensor]:
        if not tensors:
            features, labels = self._images.features(split, cancelled)
            return self._objective.zero_shot(features, split.classes), labels
        classify = self._objective.classifier(self._leaves(tensors), split.classes)
        found = [
            (classify(batch), batch.truth) for batch in self._images.in_order(split, cancelled)
        ]
        return torch.cat([one for one, _ in found]), torch.cat([one for _, one in found])

    def _leaves(self, tensors: Tensors) -> dict[str, Tensor]:
        return leaves(tensors, self._backbone.device)
