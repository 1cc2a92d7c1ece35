"""Tune a policy's prompts on one node's images, and measure their accuracy.

The learner is stateless between calls: prompts and optimizer state come in with the job and leave
with the report, as float32 copies. On a CPU, equal jobs give equal bits for an equal number of
threads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.clip.cuda_graphs import GraphedPasses, recorder_of
from fednode.clip.placed import fits
from fednode.core.facts import fingerprint
from fednode.core.types import MEASURE, PRIVATE, ZERO_SHOT, Job, Progress, Report, Tensors
from fednode.data.base import NodeData, Split
from fednode.data.reasons import summaries
from fednode.data.rescan import Rescan
from fednode.learn import initial
from fednode.learn.evaluation import Evaluation, evaluation
from fednode.learn.features import Features
from fednode.learn.images import Images
from fednode.learn.local_tuning import Batches, BatchSize, tune
from fednode.learn.prompt_module import Params, PromptModule, to_params
from fednode.learn.public import public_covariance
from fednode.learn.settings import TuningSettings

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
        module: PromptModule,
        data: NodeData,
        settings: TuningSettings,
        features: Features,
        rescan: Rescan | None = None,
        least_images: int = 1,
    ) -> None:
        """Take the parts of a node; rescan: finds new splits if the images have changed.

        least_images: privacy.least_images, for modules whose arrays name classes.
        """
        self.data = data
        self._least = least_images
        self._rescan = rescan
        self._backbone = backbone
        self._module = module
        self._settings = settings
        self._features = features
        self._images = Images(features, module.uses_image_encoder, settings, module.per_image)
        self._zero_shot: Mapping[str, float] = {}
        self._public: npt.NDArray[np.float64] | None = None
        self._params: tuple[Tensors, Params] | None = None
        self._classifier_note = ""
        self._batch_size = BatchSize(settings.batch_size, backbone.device)
        self._graphs = GraphedPasses(recorder_of(backbone.device))
        self._shapes = module.initial(0).shapes

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

        If the module's arrays name no classes, all.
        """
        if not self._module.closed_form:
            return self.classes, self.samples
        counts = Counter(image.label for image in self.data.train.images)
        enough = [at for at in range(len(self.classes)) if counts[at] >= self._least]
        return tuple(self.classes[at] for at in enough), sum(counts[at] for at in enough)

    @property
    def unsent(self) -> str:
        """A sentence on the classes of too few images, whose means are not sent; "" without any."""
        few = [name for name in self.classes if name not in self.told[0]]
        if not few or not self._module.sends_sums:
            return ""
        have, means = ("has", "its mean is") if len(few) == 1 else ("have", "their means are")
        return (
            f"{len(few)} of {len(self.classes)} classes ({named(few)}) {have} fewer than "
            f"{self._least} training images: {means} not sent (privacy.least_images)."
        )

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
            *self._batch_size.notes,
            *self._graphs.notes,
            *filter(None, [self._classifier_note]),
        ]
        if self.unsent:
            notes.append(self.unsent)
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
        """Return the module's initial arrays."""
        return self._module.initial(seed)

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Train the job's arrays (local_tuning.py), or compute them in one pass (closed form).

        A job of stage MEASURE trains nothing: the report has job.tensors and their metrics. Raise
        Cancelled if `cancelled` turns true, ModelError if the tuned arrays are not finite.
        """
        began = time.monotonic()
        if job.stage == MEASURE:
            report = Report(tensors=job.tensors, metrics={}, samples=self.samples)
            self._classifier_note = self.describe_classifier(job.tensors)
        else:
            self._reload_data()
            report = (self._fit if self._module.closed_form else self._tune)(
                job, cancelled, progress
            )
        metrics = dict(report.metrics)
        if job.measure or job.stage == MEASURE:
            metrics.update(self._measure(job, self._used(report), cancelled))
        return replace(report, metrics=metrics, seconds=time.monotonic() - began)

    def _tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        batches = Batches(
            self._images,
            self.data.train,
            self._settings,
            self._batch_size,
            job.seed,
            cancelled,
            self._graphs.drop,
        )
        with self._graphs:
            return tune(job, self._module, batches, self._settings, cancelled, progress)

    def _fit(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Return what a module without gradients computes from the training images."""
        features, labels = self._images.features(self.data.train, cancelled)
        images, size = self._images.digests(self.data.train), features.shape[1]

        def public() -> npt.NDArray[np.float64]:
            if self._public is None:
                files = self.data.files
                self._public = public_covariance(self._features, size, files, cancelled)
            return self._public

        result = self._module.fit(job, features, labels, self.classes, self._least, images, public)
        if job.measure:
            self._classifier_note = self.describe_classifier(result.tensors)
        return Report(
            tensors=result.tensors,
            metrics={} if result.loss is None else {"loss": result.loss},
            samples=self.told[1],
            carry=result.carry,
            changed=tuple(result.tensors),
        )

    def _used(self, report: Report) -> Tensors:
        """Return what the node predicts with after a training: tuned and private arrays."""
        own = {
            name.removeprefix(PRIVATE): array
            for name, array in report.carry.items()
            if name.startswith(PRIVATE) and not self._module.closed_form
        }
        return Tensors({**report.tensors, **own}) if own else report.tensors

    def _reload_data(self) -> None:
        """Use new splits if images were added or deleted since the last round."""
        fresh = self._rescan.look() if self._rescan else None
        if fresh is not None:
            self.data, self._zero_shot, self._public = fresh, {}, None
            self._images.forget()
            self._features.keep_only(fresh.files)
            self._graphs.forget()

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

    def describe_classifier(self, tensors: Tensors) -> str:
        """Return which classifier answers for the node's own classes; "" if there is only one."""
        return self._module.describe_classifier(self._params_of(tensors), self.classes)

    def results(self, tensors: Tensors) -> Mapping[str, Evaluation]:
        """Return the results by class on the same test images that `evaluate` uses."""
        by_test = {}
        for name, split in self._tests().items():
            logits, labels = self._logits(split, tensors, lambda: False)
            shares = logits.double().softmax(dim=1).cpu().numpy()  # float32 rounds many to 1
            by_test[name] = evaluation(split.classes, labels.cpu().numpy(), shares)
        return by_test

    @property
    def module(self) -> PromptModule:
        """What is tuned."""
        return self._module

    def with_module(self, module: PromptModule) -> TorchLearner:
        """Return a learner of the same images with another module, which shares the features."""
        return TorchLearner(self._backbone, module, self.data, self._settings, self._features)

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
            return self._module.zero_shot(features, split.classes), labels
        with fits(self._backbone.device, "while it classifies images"):
            classify = self._module.classifier(self._params_of(tensors), split.classes)
            answered = [
                (classify(batch), batch.targets)
                for batch in self._images.in_order(split, cancelled)
            ]
        return torch.cat([logits for logits, _ in answered]), torch.cat(
            [truth for _, truth in answered]
        )

    def _params_of(self, tensors: Tensors) -> Params:
        """Return arrays as parameters, the same object for the last arrays that were asked for."""
        if self._params is None or self._params[0] is not tensors:
            self._params = tensors, to_params(tensors, self._backbone.device)
        return self._params[1]
