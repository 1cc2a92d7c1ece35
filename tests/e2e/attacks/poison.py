"""Contributions that poison within bounds, under every merge: drift over many rounds, backdoors.

    python -m tests.e2e.attacks.poison KIND ROUNDS [RULE ...]

    none        nobody lies: what the other kinds are compared with
    drift       two liars contribute the honest mean, moved always in one direction, as far as an
                honest contribution is from the mean
    backdoor    two liars train like everybody, but put a mark into half of their images and call
                these images by the name of the first class
    boosted     the same, and their changes are multiplied by four

Seven honest nodes and two liars train prompts on the built-in images (fednode-mini, four shots).
The liars know all honest contributions before they speak. RULE is a rule of policy.merge; without,
all are played. Prints the honest nodes' mean accuracy on their test images, the norm of the merged
prompts, and which share of marked test images of other classes is taken for the first class.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import PIL.Image
import torch

from fednode.clip import backbone
from fednode.clip.settings import ModelSettings
from fednode.core.merge.robust import combine
from fednode.core.settings import MergeSettings
from fednode.core.types import EMPTY, Job, Tensors
from fednode.data.base import DataSettings, Image, NodeData, Split
from fednode.data.load import load
from fednode.learn.cache import cache_of
from fednode.learn.context import ContextObjective
from fednode.learn.features import Features
from fednode.learn.settings import CacheSettings, TuningSettings
from fednode.learn.torch_learner import TorchLearner

HONEST: Final = 7
LIARS: Final = 2
BOOST: Final = 4.0
MARK_SHARE: Final = 4
"""The mark covers a square whose side is the image's divided by this number."""
TARGET: Final = 0
TUNING: Final = TuningSettings(
    batch_size=100, lr=0.1, init_words=None, context_length=4, schedule="constant"
)
RULES: Final = {
    "mean": MergeSettings(),
    "median": MergeSettings("median"),
    "trimmed": MergeSettings("trimmed", trim=0.25),
    "krum": MergeSettings("krum", liars=LIARS),
    "center": MergeSettings("center"),
    "clip": MergeSettings("clip"),
}
Vector = npt.NDArray[np.float64]


def flat(tensors: Tensors) -> Vector:
    """Return all arrays as one vector."""
    return np.concatenate([np.asarray(tensors[key], np.float64).ravel() for key in sorted(tensors)])


def shaped(vector: Vector, like: Tensors) -> Tensors:
    """Return a vector as arrays of given shapes."""
    found, at = {}, 0
    for key in sorted(like):
        found[key] = vector[at : at + like[key].size].reshape(like[key].shape).astype(np.float32)
        at += like[key].size
    return Tensors(found)


def marked(folder: Path, images: Sequence[Image]) -> tuple[Image, ...]:
    """Return copies of images with a chequered mark in a corner, named as the target."""
    made = []
    for number, image in enumerate(images):
        path = folder / f"{len(list(folder.iterdir()))}-{number}.png"
        with PIL.Image.open(image.path) as opened:
            pixels = np.array(opened.convert("RGB"))
        side = max(2, min(pixels.shape[:2]) // MARK_SHARE)
        chequers = (np.indices((side, side)).sum(axis=0) // max(1, side // 4)) % 2
        pixels[-side:, -side:] = 255 * chequers[:, :, None]
        PIL.Image.fromarray(pixels).save(path)
        made.append(Image(path, TARGET))
    return tuple(made)


def poisoned(folder: Path, data: NodeData) -> NodeData:
    """Return a node's data with marked images beside the others, in training and for tests."""
    train, own = data.train, data.own
    lies = marked(folder, train.images)
    tests = [image for image in own.images if image.label != TARGET]
    return replace(
        data,
        train=Split(train.classes, (*train.images, *lies)),
        own=Split(own.classes, marked(folder, tests)),
    )


class Mesh:
    """The honest nodes, the liars, and what they hold."""

    def __init__(self, folder: Path) -> None:
        frozen = backbone.load(ModelSettings(device="cpu"))
        features = Features(frozen, cache_of(CacheSettings()))

        def learner(data: NodeData) -> TorchLearner:
            return TorchLearner(frozen, ContextObjective(frozen, TUNING), data, TUNING, features)

        every = [
            load(DataSettings(shots=4, test=0.6, seed=seed))
            for seed in range(1, HONEST + LIARS + 1)
        ]
        self.honest = [learner(data) for data in every[:HONEST]]
        self.liars = [learner(poisoned(folder, data)) for data in every[HONEST:]]
        self.generator = np.random.default_rng(1)

    def play(self, kind: str, rule: str, rounds: int) -> str:
        """Run the rounds under a rule; return what became of the merged prompts, as words."""
        nodes = [*self.honest, *self.liars]
        held, carry = self.honest[0].initial(1), [EMPTY] * len(nodes)
        way = self.generator.normal(size=flat(held).size)
        way /= np.linalg.norm(way)
        for number in range(1, rounds + 1):
            told = []
            speak = nodes if kind in {"backdoor", "boosted"} else self.honest
            for at, one in enumerate(speak):
                job = Job(
                    round=number,
                    stage="prompts",
                    tensors=held,
                    carry=carry[at],
                    seed=1000 * number + at,
                    rounds=rounds,
                    measure=False,
                )
                report = one.tune(job, lambda: False, lambda _: None)
                carry[at] = report.carry
                told.append(report.tensors)
            every = [*told[:HONEST], *self._lies(kind, told, held, way)]
            held = combine(RULES[rule], every, [100.0] * len(every), held)
        return self._ends(held)

    def _lies(self, kind: str, told: list[Tensors], held: Tensors, way: Vector) -> list[Tensors]:
        if kind == "none":
            return []
        if kind == "backdoor":
            return told[HONEST:]
        base = flat(held)
        if kind == "boosted":
            return [shaped(base + BOOST * (flat(one) - base), held) for one in told[HONEST:]]
        honest = np.stack([flat(one) for one in told])
        mean = honest.mean(axis=0)
        far = float(np.median(np.linalg.norm(honest - mean, axis=1)))
        noise = 1e-6 * self.generator.normal(size=(LIARS, mean.size))
        return [shaped(mean + far * way + one, held) for one in noise]

    def _ends(self, held: Tensors) -> str:
        right = [one.evaluate(held, lambda: False)["own"] for one in self.honest]
        taken = [one.evaluate(held, lambda: False)["own"] for one in self.liars]
        return (
            f"accuracy {100 * np.mean(right):.1f}, norm {np.linalg.norm(flat(held)):.2f}, "
            f"marked images taken for the first class {100 * np.mean(taken):.1f}"
        )


def main(words: Sequence[str]) -> None:
    """Play one kind under the rules."""
    kind, rounds, *rules = words
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="poison-") as folder:
        mesh = Mesh(Path(folder))
        start = flat(mesh.honest[0].initial(1))
        print(f"{kind}, {rounds} rounds; before: norm {np.linalg.norm(start):.2f}", flush=True)
        for rule in rules or RULES:
            print(f"  {rule:8} {mesh.play(kind, rule, int(rounds))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
