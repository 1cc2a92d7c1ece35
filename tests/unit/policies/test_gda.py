"""Policy gda with a small model: statements, the classifiers that are made of them, and words."""

from __future__ import annotations

import itertools
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.core.rounds.statements import COMBINE, STATEMENT, pack
from fednode.core.types import EMPTY, MEASURE, Job, Report, Tensors
from fednode.data.base import DataSettings, NodeData, PartitionSettings
from fednode.data.load import load
from fednode.learn.export import affine, as_texts
from fednode.learn.features import Features
from fednode.learn.prompt_module import Batch, FitInputs, to_params
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.policies.class_sums import PERSONAL, ROWS, WEIGHTS, rows_of
from fednode.policies.gaussian import Floats, Sums, log_loss, merge, within
from fednode.policies.gda import (
    JUDGED,
    MIXED_RATIO,
    PUBLIC,
    SCATTER,
    SENTENCES,
    GaussianModule,
    GDAConfig,
    NodeClassifier,
    PooledClassifier,
)
from fednode.policies.local import LocalConfig
from fednode.policies.local import head as local
from fednode.testing.learners import ignore, never

CLASSES = ("accordion", "barrel", "beaver", "gerenuk")
SIZE = 16


def public() -> Floats:
    return np.diag(np.linspace(0.5, 1.5, SIZE)) / 40


def module(model: FrozenClip, **set_: Any) -> GaussianModule:
    return GaussianModule(model, TuningSettings(), GDAConfig(**set_))


def statement(sums: Sums) -> Tensors:
    return Tensors({ROWS: rows_of(sums)}, sums.classes)


def drawn(seed: int, counts: Mapping[str, int], noise: float = 0.4) -> Any:
    """Return unit features of a node's images, one direction for each class, and their classes."""
    draw = np.random.default_rng(seed)
    names = [name for name, count in counts.items() for _ in range(count)]
    x = np.eye(SIZE)[[CLASSES.index(name) for name in names]]
    x = x + noise * draw.normal(size=x.shape) / 2
    return x / np.linalg.norm(x, axis=1, keepdims=True), names


def combined(made: GaussianModule, images: Any, peers: Mapping[str, Any]) -> Tensors:
    """Return what a node with images uses after the statements of peers with images."""
    x, names = images
    classes = tuple(sorted(set(names)))
    labels = torch.tensor([classes.index(name) for name in names])
    told = pack({name: statement(Sums.of(*theirs)) for name, theirs in peers.items()})
    tensors = Tensors({**made.initial(1), **told}, told.classes)
    job = Job(round=1, stage=COMBINE, tensors=tensors, seed=1)
    return made.fit(FitInputs(job, torch.from_numpy(x), labels, classes, public)).tensors


def mesh(made: GaussianModule, used: Tensors) -> PooledClassifier:
    return PooledClassifier(made, to_params(used, "cpu"))


def changed(used: Tensors, name: str, array: Any) -> Tensors:
    return Tensors({**used, name: np.asarray(array)}, used.classes)


EQUAL = dict.fromkeys(CLASSES, 6)
OWN, PEERS = drawn(1, EQUAL), {"b": drawn(2, EQUAL), "c": drawn(3, EQUAL)}
ASKED, ASKED_NAMES = drawn(9, dict.fromkeys(CLASSES, 20))


# A job --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> NodeData:
    how = PartitionSettings("dirichlet", 0, 2, 100.0)
    return load(DataSettings(classes=CLASSES, shots=6, partition=how))


def stated(model: FrozenClip, data: NodeData, least: int) -> tuple[TorchLearner, Report]:
    """Return a learner that sends classes of so many images or patients, and its statement."""
    made, features = module(model), Features(model)
    learner = TorchLearner(model, made, data, TuningSettings(), features, least_images=least)
    job = Job(round=1, stage=STATEMENT, tensors=learner.initial(1), seed=1, measure=False)
    return learner, learner.tune(job, never, ignore)


def test_a_class_of_few_patients_is_not_sent(model: FrozenClip, data: NodeData) -> None:
    """All images of the first class are of one patient, and each other image of its own."""
    first = [one.path for one in data.train.images if one.label == 0]
    groups = {one.path: str(one.path) for one in data.train.images} | dict.fromkeys(first, "ada")
    learner, report = stated(model, replace(data, groups=groups), 2)
    sent = report.tensors.classes
    assert len(first) > 1
    assert learner.announced[0] == sent
    assert CLASSES[0] not in sent
    assert sent
    assert f"({CLASSES[0]})" in learner.unsent
    assert "fewer than 2 patients to train on" in learner.unsent


def test_a_statement_has_the_sums_of_the_classes_with_enough_images(
    model: FrozenClip, data: NodeData
) -> None:
    counts = np.bincount([one.label for one in data.train.images], minlength=4)
    least = int(np.sort(counts)[1])
    learner, report = stated(model, data, least)
    enough = [at for at in range(4) if counts[at] >= least]
    assert report.tensors.classes == tuple(CLASSES[at] for at in enough)
    assert report.tensors[ROWS][:, 0].tolist() == counts[enough].tolist()
    assert learner._public is None, "a statement needs no public images"
    x = Features(model).of([one.path for one in data.train.images], never).features.numpy()
    y = np.array([one.label for one in data.train.images])
    assert np.allclose(report.tensors[ROWS][0, 1:], x[y == enough[0]].sum(axis=0), atol=1e-5)
    assert report.samples == counts[enough].sum()
    assert learner.announced == (report.tensors.classes, counts[enough].sum())
    again = learner.tune(
        Job(round=2, stage=STATEMENT, tensors=EMPTY, seed=1, carry=report.carry), never, ignore
    )
    assert again.tensors == report.tensors


def test_what_a_node_uses_has_all_its_own_classes_and_never_leaves_it(model: FrozenClip) -> None:
    used = combined(module(model), OWN, PEERS)
    assert sorted(used) == [
        JUDGED, PUBLIC, SCATTER, ROWS, f"{ROWS}/", f"{ROWS}/b", f"{ROWS}/c"
    ]  # fmt: skip
    assert used[f"{ROWS}/"][:, 1].tolist() == [6, 6, 6, 6]
    assert np.allclose(used[SCATTER], within(*OWN).inside, atol=1e-6)
    accuracy, worse = used[JUDGED]
    assert 0.5 < accuracy <= 1.0
    assert worse <= 0


def test_rounds_compute_the_public_covariance_once_and_a_measured_round_one_classifier(
    model: FrozenClip, data: NodeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = (
        "fednode.learn.torch_learner.public_covariance",
        "fednode.policies.gda.PooledClassifier",
    )
    calls = [mock.Mock(wraps=pkgutil.resolve_name(path)) for path in paths]
    for path, call in zip(paths, calls, strict=True):
        monkeypatch.setattr(path, call)
    settings = TuningSettings(evaluate_every=1)
    learner = TorchLearner(model, module(model), data, settings, Features(model))
    for number in (1, 2):
        job = Job(round=number, stage=COMBINE, tensors=learner.initial(1), seed=1)
        report = learner.tune(job, never, ignore)
        assert {"own", "loss"} <= set(report.metrics)
        assert report.metrics["own"] == learner.evaluate(report.tensors, never)["own"]
        assert any(note.startswith("this node classifies by") for note in learner.notes)
        assert report.tensors[PUBLIC].trace() > 0
        measured = learner.tune(replace(job, stage=MEASURE, tensors=report.tensors), never, ignore)
        assert measured.metrics["own"] == report.metrics["own"]
    assert [call.call_count for call in calls] == [1, 2]


# The classifiers ----------------------------------------------------------------------------------


TWO, JOINT = CLASSES[:2], (*CLASSES, "camel")


@pytest.mark.parametrize(
    ("set_", "own", "asked", "which", "ratio"),
    [
        ({}, CLASSES, CLASSES, "personal", 0.3),
        ({"ratio": 2.0}, CLASSES, CLASSES, "personal", 2.0),
        ({"ratio": 0.0, "temperature": 4.0}, CLASSES, CLASSES, "personal", 0.0),
        ({}, TWO, TWO, "personal", 0.3),
        ({}, TWO, CLASSES, "global", 0.3),
        ({"predict": "global"}, TWO, TWO, "global", 0.3),
        ({}, CLASSES, JOINT, "mixed", MIXED_RATIO),
    ],
)
def test_which_classifier_answers_for_which_classes(
    model: FrozenClip,
    set_: dict[str, Any],
    own: tuple[str, ...],
    asked: tuple[str, ...],
    which: str,
    ratio: float,
) -> None:
    made, images = module(model, **set_), drawn(1, dict.fromkeys(own, 6))
    used = mesh(made, combined(made, images, PEERS))
    peers = merge([Sums.of(*theirs) for theirs in PEERS.values()])
    node = NodeClassifier(made, Sums.of(*images), within(*images), public(), peers)
    drawn_to = node.own if which == "personal" else None
    gauss = node.gaussian.log_density(ASKED, asked, drawn_to, node.weight)
    expected = (gauss + ratio * made.prompt(ASKED, asked)) / set_.get("temperature", 16.0)
    assert used.which(asked) == which
    assert node.weight > 1
    assert np.allclose(used.logits(asked)(ASKED), expected, atol=1e-4)


def test_no_honest_node_is_better_off_alone(model: FrozenClip) -> None:
    """Images that are far apart fit any classifier, and at a low temperature without any loss."""
    made, counts = module(model), dict.fromkeys(CLASSES, 4)
    for seed, noise in itertools.product(range(0, 60, 10), (0.05, 0.3, 0.6)):
        own, *others = (drawn(seed + at, counts, noise) for at in range(4))
        peers = dict(zip("bcd", others, strict=True))
        assert mesh(made, combined(made, own, peers)).worse <= 0


def test_a_node_whose_peers_do_not_fit_its_images_is_better_off_alone(
    model: FrozenClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers claim that all classes look alike, each with as many images as count."""
    monkeypatch.setattr("fednode.policies.trust.mislabelled", lambda *_: {})  # nobody is doubted
    made, own = module(model), drawn(1, dict.fromkeys(CLASSES, 20), 0.9)
    x = np.repeat(np.eye(SIZE)[:1], 800, axis=0)
    x[::2] = np.eye(SIZE)[1]
    lie = x, [name for name in CLASSES for _ in range(200)]
    used = mesh(made, combined(made, own, {"b": lie, "c": lie}))
    assert used.worse > 0
    assert used.which(CLASSES) == "alone"
    lonely = NodeClassifier(made, Sums.of(*own), within(*own), public())
    expected = lonely.logits(ASKED, CLASSES, personal=True)
    assert np.allclose(used.logits(CLASSES)(ASKED), expected, atol=1e-4)
    assert used.describe(CLASSES).startswith(
        "this node classifies by the class means of its own images alone, because those of the mesh"
    )


def test_the_head_alone_is_better_calibrated_than_a_guess(model: FrozenClip) -> None:
    """At the temperature that fits separable training images best, wrong names are sure ones."""
    made = module(model)
    labels = np.array([CLASSES.index(name) for name in ASKED_NAMES])
    for noise in (0.05, 0.4):
        used = mesh(made, combined(made, drawn(1, EQUAL, noise), {}))
        assert used.which(CLASSES) == "own"
        assert log_loss(used.logits(CLASSES)(ASKED), labels).mean() < np.log(4)


def test_local_with_this_head_is_this_policy_without_peers(model: FrozenClip) -> None:
    alone = local(model, TuningSettings(), LocalConfig("gda"))
    assert isinstance(alone, GaussianModule)
    assert not alone.sends_sums
    used = combined(alone, OWN, {})
    assert used == combined(module(model), OWN, {})
    labels = torch.tensor([CLASSES.index(name) for name in OWN[1]])
    job = Job(round=2, stage="prompts", tensors=used, seed=1)
    again = alone.fit(FitInputs(job, torch.from_numpy(OWN[0]), labels, CLASSES, public))
    assert again.tensors == used, "its next round begins from what it uses"


def test_classes_that_no_node_has_get_the_hand_written_prompt(model: FrozenClip) -> None:
    made = module(model)
    for used in (combined(made, OWN, PEERS), made.initial(1)):
        found = mesh(made, used)
        assert found.which(("camel", "lemon")) == "prompt"
        logits = found.logits(("camel", "lemon"))(ASKED)
        assert np.array_equal(logits, made.prompt(ASKED, ("camel", "lemon")))
        assert "no node has images of these classes" in found.describe(("camel", "lemon"))
    assert mesh(made, made.initial(1)).which(CLASSES) == "prompt"


@pytest.mark.parametrize("asked", [CLASSES, (*CLASSES, "camel"), ("camel", "lemon")])
def test_one_product_gives_the_same_logits_as_the_node(
    model: FrozenClip, asked: tuple[str, ...]
) -> None:
    made = module(model)
    used = combined(made, OWN, PEERS)
    weights, bias = affine(made, used, asked)
    expected = mesh(made, used).logits(asked)(ASKED)
    x = torch.from_numpy(ASKED).float()
    found = made.classifier(to_params(used, "cpu"), asked)(Batch(image_features=x))
    assert np.allclose(found.numpy(), expected, atol=1e-4)
    assert np.allclose(ASKED @ weights.T + bias, expected, atol=1e-4)
    assert (as_texts(weights, bias) is None) == bool(set(asked) & set(CLASSES))


def test_exported_weights_classify_as_they_were_made(model: FrozenClip) -> None:
    made = module(model)
    weights = np.arange(4.0 * (SIZE + 1)).reshape(4, -1) / 50
    own = np.zeros((4, SIZE + 2))
    own[:2] = np.column_stack([np.ones(2), -weights[:2]])
    file = to_params(Tensors({WEIGHTS: weights, PERSONAL: own}, CLASSES), "cpu")
    batch = Batch(image_features=torch.from_numpy(ASKED).float())

    def logits(*classes: str) -> Floats:
        return np.asarray(made.classifier(file, classes)(batch).double().numpy())

    every = ASKED @ weights[:, :-1].T + weights[:, -1]
    assert np.allclose(logits(*CLASSES), every, atol=1e-4)
    assert np.allclose(logits(*CLASSES[:2]), -every[:, :2], atol=1e-4)
    assert np.allclose(logits("camel"), made.prompt(ASKED, ["camel"]), atol=1e-4)
    assert made.describe_classifier(file, CLASSES) == SENTENCES[WEIGHTS]


# Peers that lie -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "peers", "said"),
    [
        ((0, 1, 2, 3), "b", ""),
        ((1, 2, 3, 0), "b", "leaves out classes of b: 'accordion' looks like 'barrel', 'barrel' "),
        ((1, 2, 3, 0), "b", "looks like 'beaver', and 2 more do not fit their names"),
        ((1, 0, 2, 3), "b", "classes of b: 'accordion' looks like 'barrel', 'barrel' looks like"),
        ((1, 0, 2, 3), "bc", "most other nodes have other images under 'accordion', 'barrel' than"),
    ],
)
def test_classes_of_peers_with_wrong_names_do_not_count(
    model: FrozenClip, order: tuple[int, ...], peers: str, said: str
) -> None:
    """One peer swapped its labels, or this node did: then most peers contradict it."""
    made, turned = module(model), [CLASSES[order[CLASSES.index(name)]] for name in OWN[1]]
    back = [CLASSES[order.index(CLASSES.index(name))] for name in turned]
    assert back == OWN[1]
    used = combined(made, drawn(1, EQUAL, 0.05), {
        name: (drawn(2, EQUAL, 0.05)[0], [CLASSES[order.index(CLASSES.index(c))] for c in OWN[1]])
        for name in peers
    })  # fmt: skip
    found = mesh(made, changed(used, JUDGED, [1.0, -1.0]))
    wrong = {name for at, name in enumerate(CLASSES) if order[at] != at}
    assert {name: set(one) for name, one in found.mislabelled.items()} == (
        dict.fromkeys(peers, wrong) if wrong else {}
    )
    assert all(set(one.classes) == set(CLASSES) - wrong for one in found.peers)
    note = found.describe(CLASSES)
    assert said in note
    assert ("check the labels" in note) == (len(peers) > 1)


def test_a_million_claimed_images_weigh_as_ten_times_the_median(model: FrozenClip) -> None:
    made, own = module(model), Sums.of(*OWN)
    used = combined(made, OWN, {"b": OWN})
    many = np.column_stack([np.arange(4), rows_of(own) * 1e5])
    found = mesh(made, changed(used, f"{ROWS}/b", many))
    assert [one.counts.tolist() for one in found.peers] == [(10 * own.counts).tolist()]
