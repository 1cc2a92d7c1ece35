"""Settings of prompt tuning, caches and privacy. Importing this file does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from fednode.core.settings import STRICT, Initial, bounded, positive

AUTO: Final = "auto"
"""The value of a setting that the model decides."""
AUTO_MOST: Final = 16
"""The most context vectors that tuning.context_length: auto stands for (CoOp's number)."""


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """What all nodes of this machine share: a file of what is known of images."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    folder: str | None = None
    """Folder of this file, on a disk of this machine; null: ~/.cache/fednode, or fednode in
    XDG_CACHE_HOME."""
    size_mb: int = 2000
    """Limit for image features; beyond it the oldest are deleted. The same file lists which image
    files can be used. 0: nothing is kept, so every start examines and encodes every image."""

    def __post_init__(self) -> None:
        bounded("cache.size_mb", self.size_mb, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSettings:
    """Local training in one round. The defaults are those of ZeroDFL's released code.

    Other policies bring defaults of their own.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    kind: Literal["torch", "closed-form"] = "torch"
    """torch tunes CLIP prompts; closed-form is a quadratic without torch, for trying a mesh."""
    step_s: float = 0.0
    """Only for closed-form: least time of each of its 8 steps, for tests of a mesh that tunes."""
    context_length: int | Literal["auto"] = 4
    """Number of learned context vectors. More vectors can fit more, and overfit few images
    sooner. auto: half of the tokens that the model reads, and at most 16, so that class names
    have room; all nodes must say auto."""
    init_std: float = 0.02
    """Standard deviation of the normal distribution from which their initial values are drawn."""
    init_words: str | None = None
    """Words whose token embeddings are the initial values instead; they must be exactly
    context_length tokens. null: initial values are drawn."""
    start: Initial | None = None
    """common: all nodes draw the same initial values from `seed`. own: each node draws its own
    from `seed` and its name (not with init_words, and not for policies whose nodes share one
    state). null: own for zerodfl and local without init_words, common otherwise."""
    epochs: int = 1
    """Passes over the training images in a round. More passes drift further from the other nodes
    between two merges."""
    iterations: int = 0
    """Number of steps in a round, each on the next batch of the shuffled images; it replaces
    `epochs`. 0: whole epochs."""
    batch_size: int = 200
    """Images per step. With 200 and few shots, a round is a single step."""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """The optimizer."""
    lr: float = 0.003
    """Step size. A step size that is too high makes CLIP forget, new classes first."""
    momentum: float = 0.9
    """Only for sgd."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Only for adam and adamw: decay of the averages of gradients and of their squares."""
    eps: float = 1e-8
    """Only for adam and adamw: added to the root of the average of squares. A larger value slows
    rare directions."""
    weight_decay: float = 1e-5
    """How much each step shrinks the prompts. A larger value keeps prompts shorter."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """cosine lowers lr to 0, one step per round; constant keeps lr."""
    horizon: int = 0
    """Number of rounds over which the cosine falls to 0; 0: rounds.max."""
    knowledge_weight: float = 0.0
    """KgCoOp's w: weight of the distance to the text features of `template`. 0: off; 8 is strong.
    It protects accuracy on new classes."""
    template: str = AUTO
    """The hand-written prompt, with {} for the class name, used for zero-shot accuracy, by
    knowledge_weight and by policies that begin from it. auto: the sentence of the model's authors,
    which is "a photo of a {}." but for BiomedCLIP; all nodes must have the same."""
    pixels_mb: int = 1000
    """Only for policies with visual prompts: memory for images, in megabytes. An image is kept as
    tokens, which the model computes before the first prompt, if they are smaller than its
    pixels. Beyond this limit tokens are read from the cache, and pixels are decoded again."""
    evaluate_every: int | None = None
    """Number of rounds between two evaluations on test images, which the page draws; 0: only after
    the last round. null: after the first round and then ten times in a run (each tenth round if
    rounds.max is 0)."""
    gpu_share: float | None = None
    """Share of a GPU's memory that this node may use, so that several nodes fit on one GPU: 0.25
    for four nodes. If the memory ends in a step, the node takes smaller batches. null: all of it.
    Has no effect on a CPU."""
    threads: int = 0
    """CPU threads of torch; 0: all but one, which is left to the network during tuning."""

    def __post_init__(self) -> None:
        if self.context_length != "auto":
            bounded("tuning.context_length", self.context_length, 1)
        for key in ("epochs", "batch_size"):
            bounded(f"tuning.{key}", getattr(self, key), 1)
        at_least_0 = "init_std weight_decay horizon iterations knowledge_weight pixels_mb step_s"
        for key in at_least_0.split():
            bounded(f"tuning.{key}", getattr(self, key), 0)
        bounded("tuning.evaluate_every", self.evaluate_every or 0, 0)
        positive("tuning.lr", self.lr)
        positive("tuning.eps", self.eps)
        for beta in self.betas:
            bounded("tuning.betas", beta, 0, 0.9999999)
        bounded("tuning.momentum", self.momentum, 0, 0.9999)
        bounded("tuning.threads", self.threads, 0, 1024)
        if self.gpu_share is not None:
            positive("tuning.gpu_share", self.gpu_share, 1)
        if self.template != AUTO and self.template.count("{}") != 1:
            raise ValueError(
                f"tuning.template is {self.template!r}; it must be auto, or have one {{}}, for the "
                "class name."
            )
        if self.init_words is not None and not self.init_words.strip():
            raise ValueError("tuning.init_words is empty; give words, or null for a normal start.")
        if self.start == "own" and self.init_words is not None:
            raise ValueError(
                f"tuning.start is 'own', and tuning.init_words {self.init_words!r} give every node "
                "the same start: set tuning.start to common, or tuning.init_words to null."
            )

    @property
    def vectors(self) -> int:
        """Return context_length as a number; `fitted` gives one to settings that say auto."""
        assert self.context_length != "auto", "auto is a number once the model is known"
        return self.context_length

    def fitted(self, reads: int) -> TuningSettings:
        """Return settings with a number of vectors for a model that reads `reads` tokens."""
        if self.context_length != "auto":
            return self
        return replace(self, context_length=min(AUTO_MOST, max(1, reads // 2)))

    def worded(self, template: str) -> TuningSettings:
        """Return settings with a hand-written prompt; template: of the model's authors."""
        return replace(self, template=template) if self.template == AUTO else self


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """Clipping and Gaussian noise on the results of training (docs/threat-model.md)."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    clip: float | None = None
    """Longest change from the initial prompts (Euclidean norm over all arrays) that a node sends,
    before the noise. A smaller value hides more and learns less. Needs `pip install
    fednode[privacy]`, which counts epsilon. null: no privacy."""
    noise: float = 1.0
    """Standard deviation of the noise, as a multiple of `clip`; more noise hides more. `fednode
    status` reports the epsilon of all messages so far, for the node's data set as a whole."""
    delta: float = 1e-5
    """The delta for which epsilon is reported; choose it well below 1 / number of images."""
    least_images: int = 5
    """Only with policy gda: a class of fewer training images is not named in what the node sends,
    and its images are not counted in it. A class is sent again once so many of its images were
    added or removed. Where patients are known (data.groups, DICOM), they are counted in place of
    images. Each node chooses for itself."""

    def __post_init__(self) -> None:
        bounded("privacy.least_images", self.least_images, 1)
        if self.clip is not None:
            positive("privacy.clip", self.clip)
        positive("privacy.noise", self.noise)
        if not 0 < self.delta < 1:
            raise ValueError(f"privacy.delta is {self.delta:g}; it must be between 0 and 1.")
