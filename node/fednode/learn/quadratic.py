"""A learner without torch: gradient descent on a quadratic function, solved in closed form.

It minimises ||P - target||^2 / 2. The target is drawn from the node's name. After k steps with
learning rate a, the distance to the target has shrunk by the factor (1 - a)^k. So every result can
be computed by hand. Used for trying a mesh, for tests and for simulation. A step takes no time,
unless the learner is asked to wait.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping

import numpy as np

from fednode.core.facts import fingerprint
from fednode.core.rounds.statements import STATEMENT
from fednode.core.types import MEASURE, Array, Job, Progress, Report, Tensors
from fednode.learn.learner import Cancelled, Learner

STEPS = 8
CONTEXT = "context"
ROWS = "rows"
"""The array of class sums (policies/class_sums.py)."""


class QuadraticLearner(Learner):
    """Tune {"context": [rows, width]}, or arrays of other shapes, towards the node's targets."""

    backbone = "closed-form"

    def __init__(
        self,
        name: str,
        rows: int = 4,
        width: int = 16,
        rate: float = 0.1,
        samples: int = 32,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        step_s: float = 0.0,
    ) -> None:
        """Draw the targets. step_s: time that each step of a tuning takes, at least."""
        self.name = name
        self._samples = samples
        self._step_s = step_s
        self._rate = rate
        self._shapes = dict(sorted((shapes or {CONTEXT: (rows, width)}).items()))
        self._targets = {
            key: _normal(_purpose("target", name, key), shape)
            for key, shape in self._shapes.items()
        }

    @property
    def target(self) -> Array:
        """The target of the array "context"."""
        return self._targets[CONTEXT]

    @property
    def schema(self) -> str:
        shapes = {name: str(shape) for name, shape in self._shapes.items()}
        return fingerprint({**shapes, "dtype": "float32"})

    @property
    def classes(self) -> tuple[str, ...]:
        """One invented class, named after the node."""
        return (f"target of {self.name}",)

    @property
    def samples(self) -> int:
        return self._samples

    def initial(self, seed: int) -> Tensors:
        return Tensors(
            {
                key: 0.02 * _normal(_purpose("initial", str(seed), key), shape)
                for key, shape in self._shapes.items()
            }
        )

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Take STEPS gradient steps towards the target; compute in float64, return float32.

        The loss in the progress is the closed form: it shrinks by (1 - rate)^2 a step.
        """
        if job.stage == MEASURE:
            metrics = self._measure(job.tensors)
            return Report(tensors=job.tensors, metrics=metrics, samples=self.samples)
        prompts = {name: np.asarray(array, dtype=np.float64) for name, array in job.tensors.items()}
        began = self._loss(prompts)
        for step in range(1, STEPS + 1):
            self._wait(cancelled)
            prompts = {
                name: array + self._rate * (self._targets[name] - array)
                for name, array in prompts.items()
            }
            progress(Progress(step, STEPS, began * (1 - self._rate) ** (2 * step)))
        tuned = Tensors(prompts)
        metrics = {"loss": self._loss(prompts), **(self._measure(tuned) if job.measure else {})}
        return Report(
            tensors=tuned,
            metrics=metrics,
            samples=self.samples,
            steps=STEPS,
            changed=tuple(sorted(prompts)),
        )

    def _wait(self, cancelled: Callable[[], bool]) -> None:
        """Let a step take its time; raise Cancelled if the job is cancelled."""
        if cancelled():
            raise Cancelled
        if self._step_s:
            time.sleep(self._step_s)

    def _measure(self, tuned: Tensors) -> dict[str, float]:
        own = self.evaluate(tuned, lambda: False)["own"]
        return {"own": own, "validation": own, "validation_loss": 1.0 / own - 1.0}

    def evaluate(self, tensors: Tensors, cancelled: Callable[[], bool]) -> Mapping[str, float]:
        """Return a score (0..1) that rises as the target nears; 0 for empty tensors."""
        if not tensors:
            return {"own": 0.0}
        wide = {name: np.asarray(array, dtype=np.float64) for name, array in tensors.items()}
        return {"own": 1.0 / (1.0 + self._loss(wide))}

    def _loss(self, prompts: Mapping[str, np.ndarray]) -> float:
        squares = [
            np.square(array - self._targets[name]).ravel() for name, array in prompts.items()
        ]
        return float(0.5 * np.concatenate(squares).mean())


class QuadraticSums(QuadraticLearner):
    """The same for policy gda: class sums of unit features that are drawn from the node's name.

    Each node has `images` images of a class that all nodes have, and of a class of its own. It uses
    the sums of all nodes as they are. Its score rises with the number of known classes.
    """

    def __init__(self, name: str, width: int = 8, images: int = 6) -> None:
        super().__init__(name, samples=2 * images, shapes={ROWS: (0, 1 + width)})
        self._images, self._width = images, width

    @property
    def classes(self) -> tuple[str, ...]:
        return ("common", f"own of {self.name}")

    def initial(self, seed: int) -> Tensors:
        return Tensors({ROWS: np.zeros((0, 1 + self._width))})

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Return the node's class sums, or all nodes' class sums that the job names."""
        if job.stage == MEASURE:
            return super().tune(job, cancelled, progress)
        self._wait(cancelled)
        tensors = self._sums() if job.stage == STATEMENT else job.tensors
        return Report(
            tensors=tensors, metrics={"loss": 1.0}, samples=self.samples, changed=tuple(tensors)
        )

    def evaluate(self, tensors: Tensors, cancelled: Callable[[], bool]) -> Mapping[str, float]:
        return {"own": 1.0 - 1.0 / (1.0 + len(tensors.classes))}

    def _measure(self, tuned: Tensors) -> dict[str, float]:
        own = self.evaluate(tuned, lambda: False)["own"]
        return {"own": own, "validation": own, "validation_loss": 1.0 - own}

    def _sums(self) -> Tensors:
        rows = []
        for name in self.classes:
            drawn = _normal(_purpose("images", self.name, name), (self._images, self._width))
            unit = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
            rows.append([float(self._images), *unit.sum(axis=0)])
        return Tensors({ROWS: rows}, self.classes)


def _purpose(what: str, whose: str, key: str) -> str:
    return f"{what}\0{whose}" if key == CONTEXT else f"{what}\0{whose}\0{key}"


def _normal(purpose: str, shape: tuple[int, ...]) -> Array:
    seed = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
