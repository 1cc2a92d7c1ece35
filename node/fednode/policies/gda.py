"""gda: Gaussian discriminant analysis from nodes' class means, without gradients.

    sends     for each class, the number of its images and the sum of their unit features, to all
              members, when at least privacy.least_images images of the class changed
    keeps     the newest such statement of each member (core/rounds/statements.py)
    computes  its own classifier from its images and the statements that it keeps:

    alone     g of gaussian.py, from the node's own images
    mesh      g, from the sums of all nodes. A peer's count of a class weighs at most ten times the
              median of the class's counts; classes whose means do not fit their names are left out
              (trust.py)
    personal  the mesh's, with each mean drawn to the node's own as far as the mesh's is worth
              (`peer_weight`)

    logits = (g + ratio z) / temperature          z: the logits of the hand-written prompt

`predict: personal` answers for lists of the node's own classes with `personal`, or with `alone` if
that surely fits the node's images better; other lists with `mesh`. If only some classes of a list
have images anywhere, the ratio is at least MIXED_RATIO; if none has, the hand-written prompt
answers. `local` with `head: gda` is the same classifier without peers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np

from fednode.core.rounds.statements import STATEMENT, StatementMethod, Statements, pack
from fednode.core.settings import STRICT, bounded
from fednode.core.types import Dtype, Json, Tensors
from fednode.lazy import Tensor, torch
from fednode.learn.prompt_module import (
    Batch,
    Classifier,
    FitInputs,
    FitResult,
    Params,
    PromptModule,
)
from fednode.policies import class_sums, gaussian, trust
from fednode.policies.class_sums import CLASSES_MAX, PERSONAL, ROWS, WEIGHTS
from fednode.policies.gaussian import Floats, GaussianClassifier, Scatter, Sums, within

OWN: Final = ""
"""The sender of the node's own sums, in what it uses: of all its classes, and never sent."""
SCATTER, PUBLIC, JUDGED = "own/scatter", "own/public", "own/judged"
"""Arrays of what a node uses. [D, D]: W of its own images; the public covariance. [2]: accuracy of
`alone` on its own images, each left out; by how much `alone` is surely better, in nats. Each of
both is judged at the temperature that fits it best, because their densities differ in scale."""
MIXED_RATIO: Final = 15.0
"""Least ratio for a list of classes of which only some have images. With a smaller one, images of
the others are drawn to the classes that have images (docs/results.md)."""
SENTENCES: Final[Mapping[str, str]] = {
    "own": "this node classifies by the class means of its own images, because no other node has "
    "its classes",
    "alone": "this node classifies by the class means of its own images alone, because those of "
    "the mesh do not fit its images",
    "personal": "this node classifies by the class means of its own images, mixed with those of "
    "the mesh",
    "global": "this node classifies by the class means of the mesh",
    "mixed": "this node classifies by the class means of the mesh, and by the hand-written prompt "
    "where no node has images of a class",
    "prompt": "this node classifies by the hand-written prompt, because no node has images of "
    "these classes",
    WEIGHTS: "the weights in this file classify; for a class that it does not name the "
    "hand-written prompt answers",
}
"""Which classifier answers, in words."""


@dataclass(frozen=True, slots=True)
class GaussianSettings:
    """Which classifier answers, and how its parts are weighed."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    predict: Literal["personal", "global"] = "personal"
    """Classifier of a node. personal: for its own classes, the node's means drawn to the mesh's,
    and the node alone where its images say so; for other classes, the mesh's. global: always the
    mesh's, which fits images of a kind that the node does not have."""
    ratio: float = 0.3
    """Weight of the hand-written prompt's logits beside the Gaussian log densities."""
    temperature: float = 16.0
    """What the sum of both is divided by: higher, and predictions are less sure."""

    def __post_init__(self) -> None:
        bounded("policy.ratio", self.ratio, 0)
        bounded("policy.temperature", self.temperature, 0.1)


@dataclass(frozen=True, slots=True)
class GDAConfig(GaussianSettings):
    """Gaussian discriminant analysis from nodes' class means, without gradients."""

    classes_max: int = 256
    """Most classes of one node that count at the others; as many as half of the nodes have, if that
    is more. Each class costs each node memory and time in each round. Of more classes those that
    other nodes have, too, count first; log and status say whose are left out."""
    wire_dtype: ClassVar[Dtype] = "float32"

    def __post_init__(self) -> None:
        GaussianSettings.__post_init__(self)
        if not 1 <= self.classes_max <= CLASSES_MAX:
            raise ValueError(
                f"policy.classes_max is {self.classes_max}; it must be from 1 to {CLASSES_MAX}, "
                "the classes that one message names."
            )


class NodeClassifier:
    """The classifier of a node's own images and of what counts of its peers' sums."""

    def __init__(
        self,
        module: GaussianModule,
        own: Sums,
        scatter: Scatter,
        public: Floats,
        peers: tuple[Sums, Scatter] | None = None,
    ) -> None:
        """Fit the classifier. own, scatter: of the node's images. public: S of gaussian.py.

        peers: what counts of their sums, merged.
        """
        self.own, self.scatter, self.public, self._module = own, scatter, public, module
        whole, between, self.weight = own, scatter, 0.0
        if peers:
            whole, apart = gaussian.merge([own, peers[0]])
            between = scatter.plus(peers[1]).plus(apart)
        self.gaussian = GaussianClassifier(whole, module.template, between, public)
        if peers:
            spread = scatter.spread or self.gaussian.spread
            self.weight = gaussian.peer_weight(own, peers[0], spread)

    def logits(
        self, x: Floats, classes: Sequence[str], *, personal: bool, ratio: float = 0.0
    ) -> Floats:
        """Return logits [n, C]. personal: means are drawn to the node's own. ratio: at least."""
        config = self._module.config
        own = self.own if personal else None
        gauss = self.gaussian.log_density(x, classes, own, self.weight)
        handwritten = max(config.ratio, ratio) * self._module.prompt(x, classes)
        return np.asarray((gauss + handwritten) / config.temperature)

    def mislabelled(self, peers: Mapping[str, Sums], accuracy: float) -> dict[str, trust.Names]:
        """Return the classes of each peer whose means do not fit their names."""

        def fit(sums: Sums) -> Callable[[Floats], Floats]:
            other = NodeClassifier(self._module, sums, self.scatter, self.public)
            return lambda x: other.logits(x, sums.classes, personal=False)

        return trust.mislabelled(self.own, peers, fit, self._module.prompt, accuracy)


class PooledClassifier:
    """All that a node uses, and the classifier that answers.

    mislabelled: for each peer some of whose classes do not fit their names, these classes, and the
    classes that they look like. They do not count here.
    """

    def __init__(self, module: GaussianModule, params: Params) -> None:
        arrays = {name: wide(one) for name, one in params.items()}
        statements = class_sums.statements_in(arrays, params.classes)
        self._module = module
        self._sums = {sender: class_sums.sums_of(one) for sender, one in statements.items()}
        self.own = self._sums.pop(OWN, None)
        if self.own is None:
            return
        free = float(self.own.counts.sum()) - len(self.own.classes)
        images = self.own, Scatter(arrays[SCATTER], free), arrays[PUBLIC]
        accuracy, self.worse = arrays[JUDGED]
        self.alone = NodeClassifier(module, *images)
        self.mislabelled = self.alone.mislabelled(self._sums, accuracy)
        self.peers = trust.counted(self.own, self._sums, self.mislabelled)
        merged = gaussian.merge(self.peers) if self.peers else None
        self.node = NodeClassifier(module, *images, merged) if merged else self.alone

    def which(self, classes: Sequence[str]) -> str:
        """Return the classifier that answers for a list of class names, a key of SENTENCES."""
        if self.own is None:
            return "prompt"
        asked, known = set(classes), set(self.node.gaussian.sums.classes)
        if self._module.config.predict == "personal" and asked <= set(self.own.classes):
            return "own" if not self.peers else "alone" if self.worse > 0 else "personal"
        return "global" if asked <= known else "mixed" if asked & known else "prompt"

    def logits(self, classes: Sequence[str]) -> Callable[[Floats], Floats]:
        """Return the function from unit features [n, D] to logits [n, C]."""
        which = self.which(classes)
        if which == "prompt":
            return lambda x: self._module.prompt(x, classes)
        node = self.alone if which == "alone" else self.node
        ratio = MIXED_RATIO if which == "mixed" else 0.0
        return lambda x: node.logits(x, classes, personal=which == "personal", ratio=ratio)

    def describe(self, classes: Sequence[str]) -> str:
        """Return which classifier answers, and which classes of peers do not count, in words."""
        notes = trust.notes(self.own, self._sums, self.mislabelled) if self.own else []
        return "; ".join([SENTENCES[self.which(classes)], *notes])


class GaussianModule(PromptModule):
    """What a node sends, and the classifier that it makes; see the file's header."""

    config: GaussianSettings
    closed_form = True
    sends_sums = True
    _last: tuple[Params, PooledClassifier] | None = None

    def initial(self, seed: int) -> Tensors:
        """Return the sums over no images."""
        return Tensors({ROWS: np.zeros((0, 1 + self.width))})

    @property
    def width(self) -> int:
        """D, the width of the features."""
        return int(self.handwritten(("thing",)).shape[1])

    def template(self, classes: Sequence[str]) -> Floats:
        """Return the unit text features [C, D] of the hand-written prompt."""
        return wide(self.handwritten(tuple(classes)))

    def prompt(self, x: Floats, classes: Sequence[str]) -> Floats:
        """Return the logits [n, C] of the hand-written prompt."""
        return float(self.clip.logit_scale) * x @ self.template(classes).T

    def fit(self, inputs: FitInputs) -> FitResult:
        """Return the node's statement, or what it uses: its own sums with all statements."""
        x, job = wide(inputs.features), inputs.job
        names = [inputs.classes[at] for at in inputs.labels.tolist()]
        own = Sums.of(x, names)
        if job.stage == STATEMENT:
            sent, carry = class_sums.to_send(
                job.carry, own, names, inputs.images, inputs.least, inputs.patients
            )
            return FitResult(sent, carry=carry)
        public = inputs.public()
        alone = NodeClassifier(self, own, within(x, names), public)
        statements = class_sums.statements_in(job.tensors, job.tensors.classes)
        statements.pop(OWN, None)
        peers = {sender: class_sums.sums_of(one) for sender, one in statements.items()}
        judged, loss = self._judge(alone, x, names, peers, inputs.patients)
        rows = Tensors({ROWS: class_sums.rows_of(own)}, own.classes)
        packed = pack({**statements, OWN: rows})
        private = {SCATTER: alone.scatter.inside, PUBLIC: public, JUDGED: np.array(judged)}
        arrays = {**self.initial(job.seed), **packed, **private}
        return FitResult(Tensors(arrays, packed.classes), loss, job.carry)

    def _judge(
        self,
        alone: NodeClassifier,
        x: Floats,
        names: Sequence[str],
        peers: Mapping[str, Sums],
        patients: Sequence[bytes],
    ) -> tuple[tuple[float, float], float]:
        """Return JUDGED, and the mean loss of the node's own images, each left out.

        An image is left out with all images of its patient, if patients are known.
        """
        classes, every = alone.own.classes, np.array(names, object)
        labels = np.array([classes.index(name) for name in names])

        def left_out(peers: tuple[Sums, Scatter] | None) -> Floats:
            logits = np.empty((len(x), len(classes)))
            for fold in gaussian.folds_of(names, patients):
                rest, here = x[~fold], every[~fold].tolist()
                sums, scatter = Sums.of(rest, here), within(rest, here)
                less = NodeClassifier(self, sums, scatter, alone.public, peers)
                logits[fold] = less.logits(x[fold], classes, personal=True)
            return logits

        lonely = left_out(None)
        accuracy = float((lonely.argmax(axis=1) == labels).mean())
        counted = trust.counted(alone.own, peers, alone.mislabelled(peers, accuracy))
        together = left_out(gaussian.merge(counted)) if counted else lonely
        more = gaussian.least_loss(together, labels) - gaussian.least_loss(lonely, labels)
        worse = gaussian.surely(more)
        best = lonely if worse > 0 else together
        return (accuracy, worse), float(gaussian.log_loss(best, labels).mean())

    def classifier(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> Classifier:
        """Return a function that gives the logits [B, classes] of the classifier that answers.

        The logits are affine in the features, so a batch costs one product.
        """
        assert isinstance(params, Params), "class sums name their classes"
        if WEIGHTS in params:
            logits = self._exported(params, classes)
        else:
            logits = self.pooled(params).logits(classes)
        bias = logits(np.zeros((1, self.width)))
        weight, offset = torch.from_numpy(logits(np.eye(self.width)) - bias), torch.from_numpy(bias)

        def classify(batch: Batch) -> Tensor:
            features = batch.image_features
            return (features.cpu().double() @ weight + offset).float().to(features.device)

        return classify

    def pooled(self, params: Params) -> PooledClassifier:
        """Return the classifier of some arrays; a round asks for the same one several times."""
        if self._last is None or self._last[0] is not params:
            self._last = params, PooledClassifier(self, params)
        return self._last[1]

    def _exported(self, params: Params, classes: tuple[str, ...]) -> Callable[[Floats], Floats]:
        """Return the classifier of an exported file's weights."""
        places = {name: at for at, name in enumerate(params.classes)}
        if not set(classes) <= set(places):
            return lambda x: self.prompt(x, classes)
        here = [places[name] for name in classes]
        personal, found = wide(params[PERSONAL])[here], wide(params[WEIGHTS])[here]
        if personal[:, 0].all():
            found = personal[:, 1:]
        return lambda x: x @ found[:, :-1].T + found[:, -1]

    def describe_classifier(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> str:
        """Return a sentence on which classifier answers for these classes, and whose sums count."""
        assert isinstance(params, Params), "class sums name their classes"
        return SENTENCES[WEIGHTS] if WEIGHTS in params else self.pooled(params).describe(classes)


class GDA(StatementMethod):
    """The exchange of class sums; see the file's header."""

    name = "gda"
    config_type = GDAConfig
    prompts = GaussianModule
    rounds: ClassVar[Mapping[str, Json]] = {"max": 0, "min_interval_s": 60.0}
    norm_checked = False

    config: GDAConfig

    def statement_bytes(self, initial: Tensors) -> int:
        return 4 * CLASSES_MAX * int(initial[ROWS].shape[1])

    def fault(self, statement: Tensors, initial: Tensors) -> str:
        return class_sums.rows_fault(statement, initial[ROWS].shape[1])

    def counted(self, statements: Statements) -> Statements:
        return class_sums.fitting(statements, self.config.classes_max)

    def note(self, statements: Statements, counted: Statements) -> str:
        return class_sums.room_note(statements, counted, self.config.classes_max)


def wide(tensor: Tensor) -> Floats:
    """Return a tensor as a float64 array on the CPU."""
    array: Floats = tensor.detach().double().cpu().numpy()
    return array
