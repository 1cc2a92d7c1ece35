"""Time policy gda's parts: the message of class sums, the classifier, and left-out losses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from fednode.core.types import Message, Tensors
from fednode.learn.gaussian import Floats, Head, Sums, between, total
from fednode.wire import codec

Result = TypeVar("Result")
NODES: Final = 4
IMAGES: Final = 8
"""Images of a class at each node."""
LEFT_OUT_MAX: Final = 200
"""So many images are left out in turn; a node leaves out all of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsRow:
    """One number of classes and one width of the features.

    message: bytes of a node's frame of sums. head_ms: the classifier of four nodes' sums.
    left_out_ms: the logits of one left-out image, over all classes.
    """

    classes: int
    width: int
    message: int
    head_ms: float
    left_out_ms: float


def measure(classes: int, width: int) -> SumsRow:
    """Return the figures for drawn unit features."""
    drawn = np.random.default_rng(classes * width)
    names = tuple(f"class {at:04}" for at in range(classes))
    texts = _unit(drawn.normal(size=(classes, width)))
    places = {name: at for at, name in enumerate(names)}

    def written(asked: Sequence[str]) -> Floats:
        return texts[[places[name] for name in asked]]

    labels = np.repeat(np.arange(classes), IMAGES)
    own, x = _node(drawn, texts, labels, names)
    parts = [own, *(_node(drawn, texts, labels, names)[0] for _ in range(NODES - 1))]
    rows = np.concatenate([own.counts[:, None], own.sums], axis=1)
    message = Message(
        mesh="m", fingerprint="0" * 64, policy="gda", sender="a", round=1, phase="sums",
        tensors=Tensors({"rows": rows}, names),
    )  # fmt: skip
    head_s, head = _timed(lambda: Head(total(parts), written, scatter=between(own.scatter, parts)))
    some = slice(None, None, max(1, len(x) // LEFT_OUT_MAX))
    shown, truth = x[some], [names[at] for at in labels[some]]
    left_s, _ = _timed(lambda: head.left_out(shown, truth, names, own, 1.0))
    return SumsRow(
        classes=classes,
        width=width,
        message=len(codec.encode(message, "float32")),
        head_ms=1e3 * head_s,
        left_out_ms=1e3 * left_s / len(shown),
    )


def _node(
    drawn: np.random.Generator, texts: Floats, labels: np.ndarray, names: tuple[str, ...]
) -> tuple[Sums, Floats]:
    """Return a node's sums and its unit features [n, D], near the texts of their classes."""
    noise = drawn.normal(size=(len(labels), texts.shape[1])) / texts.shape[1] ** 0.5
    x = _unit(texts[labels] + noise)
    return Sums.of(x, labels, names), x


def _unit(rows: Floats) -> Floats:
    lengths: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return lengths


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds that some work took, and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result
