"""A learner without torch: gradient descent on a quadratic, solved in closed form.

It minimises ||P - target||^2 / 2, where the target is drawn from the node's name. After k steps of
rate a the distance to the target has shrunk by (1 - a)^k, so every result is known beforehand:
what a mesh does with it can be checked by hand. For trying a mesh, for tests and for simulation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from node.core.facts import fingerprint
from node.core.types import Array, Job, Progress, Report, Tensors
from node.learn.learner import Cancelled

STEPS = 8


class ClosedFormLearner:
    """Tune {"context": [rows, width]} towards a target of its own."""

    def __init__(
        self, name: str, rows: int = 4, width: int = 16, rate: float = 0.1, samples: int = 32
    ) -> None:
        self._name = name
        self._rate = rate
        self._samples = samples
        self.target: Array = _normal(f"target\0{name}", (rows, width))

    @property
    def schema(self) -> str:
        """Digest of the exchanged array's name and shape."""
        return fingerprint({"context": str(self.target.shape), "dtype": "float32"})

    @property
    def backbone(self) -> str:
        """There is no model; the name stands for it."""
        return "closed-form"

    @property
    def classes(self) -> tuple[str, ...]:
        """One make-believe class, named after the node."""
        return (f"target of {self._name}",)

    @property
    def samples(self) -> int:
        """Make-believe images."""
        return self._samples

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing can be amiss."""
        return ()

    def initial(self, seed: int) -> Tensors:
        """Return a start drawn from the seed, equal for all nodes of a mesh."""
        return Tensors({"context": 0.02 * _normal(f"initial\0{seed}", self.target.shape)})

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Go STEPS steps towards the target; float64 inside, float32 out."""
        prompt = np.asarray(job.tensors["context"], dtype=np.float64)
        for step in range(1, STEPS + 1):
            if cancelled():
                raise Cancelled
            prompt = prompt + self._rate * (self.target - prompt)
            progress(Progress(step, STEPS, self._loss(prompt)))
        tuned = Tensors({"context": prompt})
        metrics = {"loss": self._loss(prompt), **self.evaluate(tuned, cancelled)}
        metrics["validation"] = metrics["own"]
        return Report(tuned, metrics, self._samples, steps=STEPS)

    def evaluate(self, tensors: Tensors, cancelled: Callable[[], bool]) -> Mapping[str, float]:
        """Return a score from 0 to 1 that rises as the target nears; 0 for empty tensors."""
        if not tensors:
            return {"own": 0.0}
        distance = self._loss(np.asarray(tensors["context"], dtype=np.float64))
        return {"own": 1.0 / (1.0 + distance)}

    def _loss(self, prompt: np.ndarray) -> float:
        return float(0.5 * np.mean(np.square(prompt - self.target)))


def _normal(purpose: str, shape: tuple[int, ...]) -> Array:
    seed = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
