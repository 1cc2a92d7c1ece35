"""The fewest floating point operations of a step, by formula: no implementation can save them.

Counted are the products with frozen weights and of attention on the tokens that a text or an image
has: once forward, and once backward where a gradient has to pass. Padding and masked scores are not
counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from fednode.clip.backbone import Backbone
from fednode.lab.bench.tasks import Inputs

# Products per token and block, in units of width squared: in-projection, out-projection, MLP.
QKV, OUT, MLP = 3, 1, 8


@dataclass(frozen=True, slots=True)
class Tower:
    """Width and number of blocks of a tower."""

    width: int
    layers: int

    def forward(self, rows: int, pairs: int, read: int, read_pairs: int, kept: int) -> float:
        """Return the operations of one forward pass.

        Args:
            rows: tokens that go through a whole block
            pairs: (query, key) pairs of a block
            read, read_pairs: the same two numbers for the last block
            kept: tokens of which only keys and values are needed
        """
        square, last = 2 * self.width**2, (OUT + MLP + 1) * read + 2 * (rows + kept)
        linears = (self.layers - 1) * ((QKV + OUT + MLP) * rows + 2 * kept) + last
        return square * linears + self._attention(pairs, read_pairs)

    def _attention(self, pairs: int, read_pairs: int) -> int:
        return 4 * self.width * ((self.layers - 1) * pairs + read_pairs)

    def backward(
        self, rows: int, pairs: int, read: int, read_pairs: int, kept: int, fixed: int
    ) -> float:
        """Return the operations of the backward pass; fixed: tokens that need no gradient."""
        forward = self.forward(rows, pairs, read, read_pairs, kept)
        return forward + self._attention(pairs, read_pairs) - 2 * self.width**2 * QKV * fixed

    def whole(self, rows: int, length: int) -> tuple[float, float]:
        """Return the operations of a forward and a backward pass that leave nothing out."""
        sizes = (rows, rows * length, rows, rows * length, 0)
        return self.forward(*sizes), self.backward(*sizes, fixed=0)


def plain_operations(frozen: Backbone, given: Inputs) -> float:
    """Return the floating point operations of the reference's step."""
    task, full = given.task, frozen.text.length_max
    once, back = Tower(frozen.text.width, frozen.text.layers).whole(task.classes * full, full)
    passes = 1 + (task.clients - 1 if task.method == "feddpt" else task.method == "plan-a")
    work = passes * once + back
    if not len(given.pixels):
        return work
    if not frozen.vision.plain:
        return work + _counted(frozen, given)
    prompts = task.clients if task.method == "feddpt" else task.context_length * task.visual
    length = _tokens(frozen) + prompts
    tower = Tower(frozen.vision.width, frozen.vision.layers)
    once, back = tower.whole(len(given.pixels) * length, length)
    teacher = task.method == "plan-a"
    return work + (1 + teacher) * (once + _patches(frozen, given)) + (back if task.visual else 0)


def _tokens(frozen: Backbone) -> int:
    """Return the number of tokens of an image: the class token and the patches."""
    return int(frozen.model.visual.positional_embedding.shape[0])


def hybrid(frozen: Backbone) -> bool:
    """Tell whether the vision transformer has a convolutional trunk."""
    conv1 = getattr(frozen.model.visual, "conv1", None)
    return frozen.vision.plain and not isinstance(conv1, torch.nn.Conv2d)


def _patches(frozen: Backbone, given: Inputs) -> float:
    """Return the operations of the patch embedding, or of the trunk, for a step's images."""
    if hybrid(frozen):
        # With gradients a trunk runs torch's own convolutions, which the counter knows.
        with torch.enable_grad(), FlopCounterMode(display=False) as counter:
            frozen.model.visual.conv1(given.pixels[:1])
        return float(counter.get_total_flops()) * len(given.pixels)
    kernel = int(frozen.model.visual.conv1.weight.numel())
    return 2.0 * len(given.pixels) * (_tokens(frozen) - 1) * kernel


def _counted(frozen: Backbone, given: Inputs) -> float:
    """Return the operations of a vision tower that is not a transformer, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        frozen.encode_images(given.pixels)
    return float(counter.get_total_flops())


def operations(frozen: Backbone, given: Inputs, cached: bool = False) -> float:
    """Return the fewest floating point operations of fednode's step.

    cached: the images come as tokens.
    """
    task = given.task
    if task.method in {"text", "zerodfl"}:
        return _texts(frozen, given, 1, True)
    if task.method == "feddpt":
        texts = _texts(frozen, given, 1, True) + _texts(frozen, given, task.clients - 1, False)
        return texts + _images(frozen, given, task.clients, False, 1, cached)
    teacher = task.method == "plan-a"
    texts = _texts(frozen, given, 1, True) + (_texts(frozen, given, 1, False) if teacher else 0)
    return texts + _images(frozen, given, task.context_length, True, 1 + teacher, cached)


def _texts(frozen: Backbone, given: Inputs, count: int, learned: bool) -> float:
    """Return the operations of encoding the class names behind `count` prompts."""
    tower = Tower(frozen.text.width, frozen.text.layers)
    lengths = (frozen.text.tokens(given.needed).ends + 1).tolist()
    prefix, own = 1 + given.task.context_length, sum(lengths)
    if not frozen.text.shares:  # each token of a text sees all of them
        whole = [prefix + n for n in lengths]
        sizes = (sum(whole), sum(n * n for n in whole), len(whole), sum(whole), 0)
        forward = tower.forward(*sizes)
        return count * (forward + (tower.backward(*sizes, own + len(whole)) if learned else 0))
    pairs = prefix * (prefix + 1) // 2 + sum(n * prefix + n * (n + 1) // 2 for n in lengths)
    sizes = (prefix + own, pairs, len(lengths), sum(n + prefix for n in lengths), 0)
    forward = tower.forward(*sizes)
    return count * (forward + (tower.backward(*sizes, own + 1) if learned else 0))


def _images(
    frozen: Backbone, given: Inputs, prompts: int, deep: bool, passes: int, cached: bool
) -> float:
    """Return the operations of `passes` forward passes over the images and one backward pass."""
    images, own = len(given.pixels), _tokens(frozen)
    tower = Tower(frozen.vision.width, frozen.vision.layers)
    tokens = own if deep else own + prompts
    # Deep prompts are the same for all images, so they are projected once.
    sizes = (
        images * tokens,
        images * tokens * (own + prompts),
        images,
        images * (own + prompts),
        prompts if deep else 0,
    )
    work = (0.0 if cached else _patches(frozen, given)) + passes * tower.forward(*sizes)
    return work + tower.backward(*sizes, images * own)
