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
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode import units
from fednode.clip.cuda_graphs import GraphedPasses, recorder_of
from fednode.clip.device import oom_as_error
from fednode.clip.model import FrozenClip
from fednode.core.facts import fingerprint
from fednode.core.types import MEASURE, PRIVATE, ZERO_SHOT, Job, Progress, Report, Tensors
from fednode.data.base import Image, NodeData, Split
from fednode.data.images import skip_report
from fednode.data.rescan import Rescan
from fednode.evaluation.gain import FOLDS, folds_of
from fednode.evaluation.results import Evaluation, evaluation
from fednode.learn import init
from fednode.learn.features import Features, Images
from fednode.learn.learner import Learner
from fednode.learn.local_tuning import Batches, BatchSize, tune
from fednode.learn.prompt_module import Batch, FitInputs, Params, PromptModule, to_params
from fednode.learn.public import public_covariance
from fednode.learn.settings import TuningSettings

NAMED = 5
"""So many class names stand in a sentence."""
EVALUATIONS = 10
"""How often a run is evaluated on test images by default."""


class TorchLearner(Learner):
    """The learner of real daemons; see node/fednode/learn/learner.py for its contract."""

    def __init__(
        self,
        backbone: FrozenClip,
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
        self.frozen = backbone
        self.module = module
        self._settings = settings
        self._features = features
        self._images = Images(features, module)
        self._zero_shot: Mapping[str, float] = {}
        self._public: npt.NDArray[np.float64] | None = None
        self._params: tuple[Tensors, Params] | None = None
        self._classifier_note = ""
        self._batch_size = BatchSize(settings.batch_size, backbone.device)
        self._graphs = GraphedPasses(recorder_of(backbone.device))
        self._shapes = module.initial(0).shapes

    @property
    def schema(self) -> str:
        shapes = {name: str(shape) for name, shape in self._shapes.items()}
        return fingerprint({**shapes, "dtype": "float32"})

    @property
    def backbone(self) -> str:
        return self.frozen.fingerprint

    @property
    def classes(self) -> tuple[str, ...]:
        return self.data.train.classes

    @property
    def samples(self) -> int:
        return len(self.data.train.images)

    @property
    def announced(self) -> tuple[tuple[str, ...], int]:
        if not self.module.closed_form:
            return self.classes, self.samples
        images = self.data.train.images
        labels = [image.label for image in images]
        counts = Counter(labels)
        patients = Counter(
            label for label, _ in set(zip(labels, self._patients(images), strict=True))
        )
        enough = [at for at in range(len(self.classes)) if patients[at] >= self._least]
        return tuple(self.classes[at] for at in enough), sum(counts[at] for at in enough)

    def _patients(self, images: Sequence[Image]) -> list[str]:
        """Return the patient of each image; unknown, an image is its own."""
        return [self.data.groups.get(image.path, str(image.path)) for image in images]

    @property
    def unsent(self) -> str:
        few = [name for name in self.classes if name not in self.announced[0]]
        if not few or not self.module.sends_sums:
            return ""
        have, means = ("has", "its mean is") if len(few) == 1 else ("have", "their means are")
        counted = "patients to train on" if self.data.groups else "training images"
        return (
            f"{len(few)} of {len(self.classes)} classes ({units.listed(few, NAMED)}) {have} fewer "
            f"than {self._least} {counted}: {means} not sent (privacy.least_images)."
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about deviations from the settings, skipped files and unknown class names."""
        data = self.data
        notes = [
            *data.notes,
            *skip_report(data.skipped, 1),
            *self._features.notes,
            self._rescan.fault if self._rescan else "",
            *init.notes(self.frozen, self._settings),
            *self._batch_size.notes,
            *self._graphs.notes,
            self._classifier_note,
            self.unsent,
        ]
        unseen = self.frozen.out_of_vocabulary(self.classes)
        if unseen:
            notes.append(
                f"{len(unseen)} of {len(self.classes)} class names hold words that "
                f"no training text of {self.frozen.label} had: {units.listed(unseen, NAMED)}."
            )
        return tuple(filter(None, notes))

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.data.warnings

    def initial(self, seed: int) -> Tensors:
        return self.module.initial(seed)

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Train the job's arrays (local_tuning.py), or compute them in one pass (closed form)."""
        began = time.monotonic()
        if job.stage == MEASURE:
            report = Report(tensors=job.tensors, metrics={}, samples=self.samples)
            self._classifier_note = self.describe_classifier(job.tensors)
        else:
            self._reload_data()
            if self.module.closed_form:
                report = self._fit(job, cancelled)
            else:
                report = self._tune(job, cancelled, progress)
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
            return tune(job, self.module, batches, self._settings, cancelled, progress)

    def _fit(self, job: Job, cancelled: Callable[[], bool]) -> Report:
        """Return what a module without gradients computes from the training images."""
        train = self.data.train
        features, labels = self._images.features(train, cancelled)
        patients = self._patients(train.images) if self.data.groups else ()
        inputs = FitInputs(
            job,
            features,
            labels,
            self.classes,
            partial(self._public_covariance, features.shape[1], cancelled),
            least=self._least,
            images=self._images.digests(train),
            patients=[patient.encode() for patient in patients],
        )
        result = self.module.fit(inputs)
        if job.measure:
            self._classifier_note = self.describe_classifier(result.tensors)
        return Report(
            tensors=result.tensors,
            metrics={} if result.loss is None else {"loss": result.loss},
            samples=self.announced[1],
            carry=result.carry,
            changed=tuple(result.tensors),
        )

    def _public_covariance(
        self, size: int, cancelled: Callable[[], bool]
    ) -> npt.NDArray[np.float64]:
        if self._public is None:
            self._public = public_covariance(self._features, size, self.data.files, cancelled)
        return self._public

    def _used(self, report: Report) -> Tensors:
        """Return what the node predicts with after a training: tuned and private arrays."""
        own = {
            name.removeprefix(PRIVATE): array
            for name, array in report.carry.items()
            if name.startswith(PRIVATE) and not self.module.closed_form
        }
        return Tensors({**report.tensors, **own}) if own else report.tensors

    def _reload_data(self) -> None:
        """Use new splits if images were added or deleted since the last round."""
        fresh = self._rescan.look() if self._rescan else None
        if fresh is not None:
            self.data, self._zero_shot, self._public = fresh, {}, None
            self._images.forget()
            self._graphs = GraphedPasses(self._graphs.recorder)
            self._features.keep_only(fresh.files)

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
        return {
            name: self._score(split, tensors, cancelled)[0] for name, split in self._tests().items()
        }

    def describe_classifier(self, tensors: Tensors) -> str:
        """Return which classifier answers for the node's own classes; "" if there is only one."""
        return self.module.describe_classifier(self._params_of(tensors), self.classes)

    def results(self, tensors: Tensors) -> Mapping[str, Evaluation]:
        """Return the results by class on the same test images that `evaluate` uses."""
        by_test = {}
        for name, split in self._tests().items():
            logits, labels = self._logits(split, tensors, lambda: False)
            patients = self._patients(split.images)
            by_test[name] = self._evaluation(split.classes, labels, logits, patients)
        return by_test

    def _evaluation(
        self, classes: tuple[str, ...], labels: Tensor, logits: Tensor, patients: Sequence[str]
    ) -> Evaluation:
        shares = logits.double().softmax(dim=1).cpu().numpy()  # float32 rounds many to 1
        known = patients if self.data.groups else ()
        return evaluation(classes, labels.cpu().numpy(), shares, known)

    def cross_validate(self, tensors: Tensors, row: str = "prompts") -> Evaluation | None:
        """Return the results on all images of own classes, each classified without its fold.

        For a module that computes its arrays: from the training images that are not in the fold.
        `tensors` gives all that is not of the own images; without tensors the hand-written prompt
        classifies. None: no image can be left out. row: what is measured, for the progress.
        """
        parts = (self.data.train, self.data.validation, self.data.own)
        images = sorted({x for part in parts for x in part.images}, key=lambda image: image.path)
        split = Split(self.classes, tuple(images))
        copies = [digest.hex() for digest in self._images.digests(split)]
        patients = [
            self.data.groups.get(image.path, copy)
            for image, copy in zip(images, copies, strict=True)
        ]
        training = set(self.data.train.images)
        trained = [image in training for image in images]
        folds = folds_of([image.label for image in images], patients, trained)
        if (folds < 0).all():
            return None
        features, labels = self._images.features(split, lambda: False)
        logits = self.module.zero_shot(features, self.classes)
        job = Job(round=0, stage="", tensors=tensors, seed=0, measure=False)
        public = partial(self._public_covariance, features.shape[1], lambda: False)
        for fold in range(FOLDS) if tensors else ():
            self._features.progress(f"measuring {row}, leaving out part", fold + 1, FOLDS)
            if fold not in folds:
                continue
            rest, here = map(torch.from_numpy, ((folds != fold) & trained, folds == fold))
            inputs = FitInputs(job, features[rest], labels[rest], self.classes, public)
            fitted = self.module.fit(inputs)
            params = to_params(fitted.tensors, self.frozen.device)
            logits[here] = self.module.classifier(params, self.classes)(Batch(features[here]))
        tested = folds >= 0
        who = [patient for patient, chosen in zip(patients, tested, strict=True) if chosen]
        found = self._evaluation(self.classes, labels[tested], logits[tested], who)
        return replace(found, folds=FOLDS)

    def with_module(self, module: PromptModule) -> TorchLearner:
        """Return a learner of the same images with another module, which shares the features."""
        return TorchLearner(self.frozen, module, self.data, self._settings, self._features)

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
            return self.module.zero_shot(features, split.classes), labels
        with oom_as_error(self.frozen.device, "while it classifies images"):
            classify = self.module.classifier(self._params_of(tensors), split.classes)
            batches = self._images.batches(split, cancelled)
            rows = [(classify(batch), batch.targets) for batch in batches]
        return torch.cat([logits for logits, _ in rows]), torch.cat([truth for _, truth in rows])

    def _params_of(self, tensors: Tensors) -> Params:
        """Return arrays as parameters, the same object for the last arrays that were asked for."""
        if self._params is None or self._params[0] is not tensors:
            self._params = tensors, to_params(tensors, self.frozen.device)
        return self._params[1]
