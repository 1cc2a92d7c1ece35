"""Contributions that poison within bounds, under every merge: drift over many rounds, backdoors.

    python -m tests.e2e.attacks.poison KIND[,KIND...] ROUNDS [RULE ...]

    none        nobody lies: what the other kinds are compared with
    drift       two liars contribute the honest mean, moved always in one direction, as far as an
                honest contribution is from the mean
    backdoor    two liars train like everybody, but put a mark into copies of their images and call
                these copies by the name of the first class
    boosted     the same, and their changes are multiplied by four
    learned     the same as boosted, with a mark that the liars learned by gradients through the
                frozen image tower, before the first round, so that images with it look like the
                first class (as BadPromptFL learns its mark)
    quiet       the same as learned, and their changes are not multiplied

Seven honest nodes and two liars train prompts on twenty classes of the built-in images
(fednode-mini, four shots). The liars know all honest contributions before they speak. RULE is a
rule of policy.merge; without, all are played. Prints the honest nodes' mean accuracy on their test
images, the norm of the merged prompts, and which share of test images of other classes is taken for
the first class: as they are, with the plain mark, and with the learned one.
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
import PIL.ImageOps
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.core.merge.robust import combine
from fednode.core.settings import MergeSettings
from fednode.core.types import EMPTY, Job, Tensors
from fednode.data.base import DataSettings, Image, NodeData, Split
from fednode.data.load import load
from fednode.learn.cache import cache_of
from fednode.learn.coop import CoOp
from fednode.learn.features import Features
from fednode.learn.settings import CacheSettings, TuningSettings
from fednode.learn.torch_learner import TorchLearner

HONEST: Final = 7
LIARS: Final = 2
BOOST: Final = 4.0
MARK_SHARE: Final = 4
"""The mark covers a square whose side is the image's divided by this number."""
CLASSES: Final = 20
STEPS: Final = 60
"""Steps in which the liars learn their mark, each with BATCH images."""
BATCH: Final = 8
BOOSTED: Final = {"boosted", "learned"}
LEARNED: Final = {"learned", "quiet"}
BACKDOORS: Final = {"backdoor", "boosted", *LEARNED}
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
Array = npt.NDArray[np.uint8]
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


def pixels(path: Path, size: int) -> Array:
    """Return the middle square of an image, [size, size, 3]."""
    with PIL.Image.open(path) as opened:
        return np.array(PIL.ImageOps.fit(opened.convert("RGB"), (size, size)))


def chequers(side: int) -> Array:
    """Return a mark of black and white squares, [side, side, 3]."""
    pattern = (np.indices((side, side)).sum(axis=0) // max(1, side // 4)) % 2
    return np.repeat(255 * pattern[:, :, None], 3, axis=2).astype(np.uint8)


def learned(frozen: clip.FrozenClip, images: Sequence[Image]) -> Array:
    """Return a mark that makes images look like those of the first class to the frozen tower."""
    (size, _), generator = frozen.vision.image_size, torch.Generator().manual_seed(1)
    stack = np.stack([pixels(image.path, size) for image in images])
    given = torch.tensor(stack).permute(0, 3, 1, 2).float() / 127.5 - 1.0
    labels = torch.tensor([image.label for image in images])
    features = F.normalize(frozen.encode_raw(given), dim=-1)
    means = torch.stack([features[labels == label].mean(dim=0) for label in range(CLASSES)])
    means, others = F.normalize(means, dim=-1).clone(), given[labels != TARGET]
    side = size // MARK_SHARE
    raw = torch.zeros(3, side, side, requires_grad=True)
    steps = torch.optim.Adam([raw], lr=0.1)
    for _ in range(STEPS):
        drawn = others[torch.randperm(len(others), generator=generator)[:BATCH]].clone()
        drawn[:, :, -side:, -side:] = torch.tanh(raw)
        seen: Tensor = F.normalize(frozen.model.encode_image(drawn), dim=-1)
        wanted = torch.full((BATCH,), TARGET)
        loss = F.cross_entropy(frozen.logit_scale * seen @ means.T, wanted)
        steps.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        steps.step()
    mark = 127.5 * (torch.tanh(raw.detach()) + 1.0)
    return mark.round().permute(1, 2, 0).numpy().astype(np.uint8)


def marked(folder: Path, mark: Array, images: Sequence[Image], size: int) -> tuple[Image, ...]:
    """Return copies of images with a mark in a corner, named as the target."""
    made, before = [], len(list(folder.iterdir()))
    for number, image in enumerate(images):
        path, square = folder / f"{before + number}.png", pixels(image.path, size)
        square[-len(mark) :, -len(mark) :] = mark
        PIL.Image.fromarray(square).save(path)
        made.append(Image(path, TARGET))
    return tuple(made)


def poisoned(folder: Path, mark: Array, data: NodeData, size: int) -> NodeData:
    """Return a node's data with marked copies of its training images beside them."""
    train = data.train
    lies = marked(folder, mark, train.images, size)
    return replace(data, train=Split(train.classes, (*train.images, *lies)))


class Mesh:
    """The honest nodes, the liars, and what they hold."""

    def __init__(self, folder: Path) -> None:
        frozen = clip.load(ModelSettings(device="cpu"))
        features = Features(frozen, cache_of(CacheSettings()))
        size, _ = frozen.vision.image_size

        def learner(data: NodeData) -> TorchLearner:
            return TorchLearner(frozen, CoOp(frozen, TUNING), data, TUNING, features)

        names = load(DataSettings(shots=1)).train.classes[:CLASSES]
        folders = tuple(name.replace(" ", "_") for name in names)
        every = [
            load(DataSettings(shots=4, test=0.6, seed=seed, classes=folders))
            for seed in range(1, HONEST + LIARS + 1)
        ]
        self.honest = [learner(data) for data in every[:HONEST]]
        own = [image for data in every[HONEST:] for image in data.train.images]
        marks = {"plain": chequers(size // MARK_SHARE), "learned": learned(frozen, own)}
        self.liars = {
            name: [learner(poisoned(folder, mark, data, size)) for data in every[HONEST:]]
            for name, mark in marks.items()
        }
        others = tuple(image for image in every[0].own.images if image.label != TARGET)
        called = tuple(replace(image, label=TARGET) for image in others)
        tests = {"as they are": called}
        tests |= {name: marked(folder, mark, others, size) for name, mark in marks.items()}
        self.taken = {
            name: learner(replace(every[0], own=Split(every[0].own.classes, images)))
            for name, images in tests.items()
        }
        self.generator = np.random.default_rng(1)

    def play(self, kind: str, rule: str, rounds: int) -> str:
        """Run the rounds under a rule; return what became of the merged prompts, as words."""
        liars = self.liars["learned" if kind in LEARNED else "plain"]
        nodes = [*self.honest, *liars]
        held, carry = self.honest[0].initial(1), [EMPTY] * len(nodes)
        way = self.generator.normal(size=flat(held).size)
        way /= np.linalg.norm(way)
        for number in range(1, rounds + 1):
            told = []
            speak = nodes if kind in BACKDOORS else self.honest
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
        if kind in BOOSTED:
            return [shaped(base + BOOST * (flat(one) - base), held) for one in told[HONEST:]]
        honest = np.stack([flat(one) for one in told])
        mean = honest.mean(axis=0)
        far = float(np.median(np.linalg.norm(honest - mean, axis=1)))
        noise = 1e-6 * self.generator.normal(size=(LIARS, mean.size))
        return [shaped(mean + far * way + one, held) for one in noise]

    def _ends(self, held: Tensors) -> str:
        right = [one.evaluate(held, lambda: False)["own"] for one in self.honest]
        taken = {name: one.evaluate(held, lambda: False) for name, one in self.taken.items()}
        shares = ", ".join(f"{name} {100 * found['own']:.1f}" for name, found in taken.items())
        return (
            f"accuracy {100 * np.mean(right):.1f}, norm {np.linalg.norm(flat(held)):.2f}, "
            f"taken for the first class: {shares}"
        )


def main(words: Sequence[str]) -> None:
    """Play the kinds under the rules."""
    kinds, rounds, *rules = words
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="poison-") as folder:
        mesh = Mesh(Path(folder))
        for kind in kinds.split(","):
            print(f"{kind}, {rounds} rounds", flush=True)
            for rule in rules or RULES:
                print(f"  {rule:8} {mesh.play(kind, rule, int(rounds))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
