"""What a method tunes: its arrays, its loss, and how an image is classified with the arrays.

A method's file has one subclass of PromptModule. It gives `initial` and, in most cases,
`text_features`; every other method has a default:

    logits = s * cos(image_features, text_features)        s: CLIP's logit scale
    loss   = cross-entropy of the logits

The learner owns images, optimizer and rounds (local_tuning.py). A module keeps no state between
jobs: what the next job needs is returned by `carry`, and comes back as `inputs.carry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from fednode.core.types import EMPTY, Array, Job, Tensors
from fednode.lazy import F, Tensor, torch
from fednode.learn.settings import TuningSettings

if TYPE_CHECKING:
    from fednode.clip.model import FrozenClip


LISTS_MOST: Final = 64
"""Lists of names whose tokens are kept; Fed-DPT has a list for the classes of each batch."""
NAMES_MOST: Final = 8192
"""Hand-written texts whose features are kept: a state has at most 4,096 class names."""
NAMES_AT_ONCE: Final = 16
"""So many names go through the text tower at once: each takes memory there."""
SAME: Final = 0.9999
"""Cosine from which two texts are one and the same for a model."""


class Params(dict[str, "Tensor"]):
    """Arrays by name, as float32 tensors on the model's device.

    classes: the class names of the arrays' rows; () if the rows belong to no classes.
    """

    def __init__(self, arrays: Mapping[str, Tensor], classes: tuple[str, ...] = ()) -> None:
        super().__init__(arrays)
        self.classes = classes


@dataclass(frozen=True, slots=True)
class PerImageArray:
    """Numbers of each image that a module needs beside its features, computed once and cached.

    They depend on the image and the frozen model alone, such as the features of patches.

    Attributes:
        name: a part of the cache's key; names everything else that the numbers depend on
        shape: of one image's numbers
        of: returns them, [B, *shape] in float32, for images [B, 3, H, W] or their tokens
    """

    name: str
    shape: tuple[int, ...]
    of: Callable[[Tensor], Tensor]


_NONE: Any = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Some images: their features or, if the module uses the image encoder, the images.

    Attributes:
        image_features: unit features [B, D]; None if the module uses the image encoder
        norms: [B], the lengths of the features before they were made unit
        images: for VisionTower.encode: tokens [B, length, width], the tower's state before the
            first prompt (VisionTower.tokens), or pixels [B, 3, H, W] if they are fewer numbers
        per_image: [B, ...], the numbers that the module's `per_image` names, if it has any
        targets: the labels [B], indices of the class names in use; training images have them
        labels_host: the labels as Python numbers, which no step waits for a GPU to read
        index_host: places of the images among all images of the job, the same in every epoch
    """

    image_features: Tensor = _NONE
    norms: Tensor = _NONE
    images: Tensor = _NONE
    per_image: Tensor = _NONE
    targets: Tensor = _NONE
    labels_host: tuple[int, ...] = ()
    index_host: tuple[int, ...] = ()

    @property
    def raw_features(self) -> Tensor:
        """The features [B, D] as the image tower gives them, before they are made unit."""
        return self.norms[:, None] * self.image_features


@dataclass(slots=True)
class JobInputs:
    """One job, as a module sees it.

    Attributes:
        params: the arrays under training, exchanged and private, with gradients
        reference: the job's reference, such as the global prompts
        carry: what the last job's `carry` returned
        classes: the node's class names, which labels index
        state: what `start` returned; a module may change it while the job runs
    """

    job: Job
    params: Mapping[str, Tensor]
    reference: Mapping[str, Tensor]
    carry: Mapping[str, Tensor]
    classes: tuple[str, ...]
    state: Any = None


@dataclass(frozen=True, slots=True)
class FitInputs:
    """What `fit` computes from.

    Attributes:
        features: unit features [n, D] of all training images
        labels: [n], indices of the class names
        public: returns the covariance [D, D] of public images (learn/public.py)
        least: what is sent names no class of fewer images, and tells no difference that fewer make
        images: digests by which an image is known again
        patients: of each image, if they are known; `least` counts them then
    """

    job: Job
    features: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    public: Callable[[], npt.NDArray[np.float64]]
    least: int = 1
    images: Sequence[bytes] = ()
    patients: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class FitResult:
    """What `fit` computed. loss: None if there is none."""

    tensors: Tensors
    loss: float | None = None
    carry: Tensors = EMPTY


Classifier = Callable[[Batch], "Tensor"]
"""Return the logits [B, classes] of a batch."""


class PromptModule:
    """See the file's header.

    Attributes:
        uses_image_encoder: the arrays change the image tower, so batches hold images, no features
        per_image: further numbers of each image that the module needs, cached; None: none
        closed_form: `fit` computes the arrays in one pass, so there is no loss
        sends_sums: the arrays hold class sums, without the classes of too few images
    """

    uses_image_encoder: bool = False
    per_image: PerImageArray | None = None
    closed_form: bool = False
    sends_sums: bool = False

    def __init__(self, clip: FrozenClip, settings: TuningSettings, config: Any = None) -> None:
        """Take the frozen model, the settings of tuning and the method's own configuration."""
        if settings.context_length == "auto" and not clip.text.fault:
            settings = settings.fitted(clip.text.length_max)
        self.clip = clip
        self.settings = settings.worded(clip.template)
        self.config = config
        self.texts = ClassTexts(clip)

    # The arrays ----------------------------------------------------------------------------------

    def initial(self, seed: int) -> Tensors:
        """Return the exchanged arrays that round 1 starts from, equal for equal seeds."""
        raise NotImplementedError

    def private(self, seed: int) -> Tensors:
        """Return the initial values of arrays that are trained and never exchanged."""
        return EMPTY

    # Classification ------------------------------------------------------------------------------

    def text_features(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> Tensor:
        """Return what `logits` compares images with: mostly unit text features [classes, D]."""
        raise NotImplementedError

    def image_features(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Return the unit features [B, D] of images."""
        return batch.image_features

    def logits(self, params: Mapping[str, Tensor], batch: Batch, texts: Tensor) -> Tensor:
        """Return the logits [B, classes] of a batch. texts: from `text_features`."""
        return self.clip_logits(self.image_features(params, batch), texts)

    def classifier(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> Classifier:
        """Return a function that classifies batches, and encodes the texts once for all of them."""
        texts = self.text_features(params, classes)
        return lambda batch: self.logits(params, batch, texts)

    def describe_classifier(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> str:
        """Return which of several classifiers answers for these classes; "" if there is one."""
        return ""

    # A job of training ---------------------------------------------------------------------------

    def start(self, inputs: JobInputs) -> Any:
        """Return what the job keeps from step to step, as `inputs.state`."""
        return None

    def loss(self, batch: Batch, inputs: JobInputs) -> Tensor:
        """Return the loss of a batch, a scalar: the cross-entropy over the node's classes."""
        texts = self.text_features(inputs.params, inputs.classes)
        return F.cross_entropy(self.logits(inputs.params, batch, texts), batch.targets)

    def losses(self, batch: Batch, inputs: JobInputs) -> Iterator[Tensor]:
        """Yield the losses of a batch; the optimizer takes a step for each before the next."""
        yield self.loss(batch, inputs)

    def after_step(self, inputs: JobInputs) -> None:
        """Update `inputs.state` after the optimizer's steps for a batch."""

    def carry(self, inputs: JobInputs) -> Mapping[str, Tensor]:
        """Return arrays for the next job, without private arrays and the optimizer's state."""
        return {}

    def fit(self, inputs: FitInputs) -> FitResult:
        """Compute the arrays in one pass, in place of a training, if `closed_form` is true."""
        raise NotImplementedError

    # Tools for subclasses ------------------------------------------------------------------------

    def clip_logits(self, features: Tensor, texts: Tensor) -> Tensor:
        """Return CLIP's logits [B, classes] of unit features: s * cos, and SigLIP's bias."""
        return self.clip.add_logit_bias(self.clip.logit_scale * features @ texts.T)

    def encode(self, context: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return the unit features of "context class." for each class: [classes, D].

        context: [m, width], or [N, m, width] for N prompts, which gives [N, classes, D].
        """
        return self.clip.text.encode(self.texts.tokens(classes, self.settings.vectors), context)

    def handwritten(self, classes: tuple[str, ...]) -> Tensor:
        """Return the unit text features [classes, D] of the hand-written prompt `template`."""
        return self.texts.written(classes, self.settings.template)

    def zero_shot(self, features: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return the logits [B, classes] of the hand-written prompt, without any learned array."""
        return self.clip_logits(features, self.handwritten(classes))


def to_params(arrays: Mapping[str, Array], device: Any) -> Params:
    """Return copies of arrays as float32 tensors on a device."""

    copies = {name: torch.tensor(array, device=device) for name, array in arrays.items()}
    return Params(copies, arrays.classes if isinstance(arrays, Tensors) else ())


def to_array(tensor: Tensor) -> Array:
    """Return a copy of a tensor as an array."""
    copied: Array = tensor.detach().cpu().numpy()
    return copied


class ClassTexts:
    """Compute token ids and hand-written text features, and keep those of recent lists.

    tokens: TextTower.tokens, kept for recent lists of names.
    """

    def __init__(self, backbone: FrozenClip) -> None:
        self._text = backbone.text
        self.tokens = lru_cache(LISTS_MOST)(backbone.text.tokens)
        self._features: dict[tuple[str, str], Tensor] = {}

    def written(self, classes: tuple[str, ...], template: str) -> Tensor:
        """Return the unit features [classes, D] of a template whose {} is each class's name.

        A feature's last bits depend on which names went through the text tower with it.
        """
        if not classes:
            return self._encode((), template)
        keys = [(template, name) for name in classes]
        names = dict.fromkeys(classes)
        missing = [name for name in names if (template, name) not in self._features]
        for at in range(0, len(missing), NAMES_AT_ONCE):
            some = tuple(missing[at : at + NAMES_AT_ONCE])
            features = self._encode(some, template)
            self._features.update(zip(((template, name) for name in some), features, strict=True))
        found = torch.stack([self._features[key] for key in keys])
        while len(self._features) > NAMES_MOST:
            del self._features[next(iter(self._features))]
        return found

    def _encode(self, names: tuple[str, ...], template: str) -> Tensor:
        with torch.no_grad():
            return self._text.encode(self._text.texts(names, template))


def indistinguishable_pairs(texts: Tensor, classes: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the pairs of class names whose unit text features [classes, D] are the same."""
    pairs = []
    for at, name in enumerate(classes[:-1]):
        near = (texts[at + 1 :] @ texts[at] > SAME).nonzero().flatten().tolist()
        pairs += [(name, classes[at + 1 + other]) for other in near]
    return pairs
