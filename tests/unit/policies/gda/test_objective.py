"""Policy gda with the shipped model: a mesh classifies as one owner of all images would."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
import torch

from fednode.clip.backbone import Backbone
from fednode.core.rounds.method import Contribution, Round
from fednode.core.types import EMPTY, PRIVATE, Job, Tensors
from fednode.data.base import DataSettings, NodeData, PartitionSettings
from fednode.data.load import load
from fednode.errors import DataError
from fednode.learn.class_sums import rows_of, sums_of
from fednode.learn.features import Features
from fednode.learn.gaussian import Floats, Head, Sums
from fednode.learn.objective import Batch
from fednode.learn.prompt_module import to_params as leaves
from fednode.learn.ratio import HEATS, RATIOS, Choice
from fednode.learn.settings import TuningSettings
from fednode.learn.share import affine, as_texts
from fednode.learn.torch_learner import TorchLearner
from fednode.policies.gda import rows
from fednode.policies.gda.config import GDAConfig
from fednode.policies.gda.exchange import GDA, LOSSES, SUMS
from fednode.policies.gda.objective import MIXED_RATIO, SURELY, Mesh, Objective, _surely
from fednode.testing import frame
from fednode.testing.learners import ignore, never

CLASSES = ("accordion", "barrel", "beaver", "gerenuk")
NAMES = ("a", "b")


@pytest.fixture(scope="module")
def nodes() -> list[NodeData]:
    return [
        load(
            DataSettings(
                classes=CLASSES, shots=6, partition=PartitionSettings("dirichlet", at, 2, 100.0)
            )
        )
        for at in range(2)
    ]


@pytest.fixture(scope="module")
def features(model: Backbone) -> Features:
    return Features(model)


def played(
    model: Backbone, nodes: list[NodeData], features: Features, least: int = 1, **set_: Any
) -> tuple[dict[str, Tensors], Objective]:
    """Return what each node uses after a round of the whole mesh, and the objective."""
    config, tuning = GDAConfig(**set_), TuningSettings()
    objective = Objective(model, tuning, config)
    methods = {name: GDA(config, replace(frame("gda"), name=name)) for name in NAMES}
    learners = {
        name: TorchLearner(model, objective, data, tuning, features, least_images=least)
        for name, data in zip(NAMES, nodes, strict=True)
    }
    states = {name: methods[name].first(learners[name].initial(1)) for name in NAMES}
    for stage in (SUMS, LOSSES):
        given = []
        for name in NAMES:
            now = Round(1, stage, states[name], states[name], members=frozenset(NAMES))
            report = learners[name].tune(methods[name].job(now), never, ignore)
            sent = methods[name].contribution(now, report)
            assert not methods[name].fault(stage, states[name], sent.tensors)
            given.append(Contribution(name, sent.tensors, report.samples))
            states[name] = replace(sent.draft, carry=report.carry)
        for name in NAMES:
            now = Round(1, stage, states[name], states[name], members=frozenset(NAMES))
            states[name] = methods[name].merge(now, given)
    assert states["a"].shared == states["b"].shared
    return {name: methods[name].used(states[name]) for name in NAMES}, objective


def all_images(nodes: list[NodeData], features: Features) -> tuple[Floats, np.ndarray]:
    images = [one for data in nodes for one in data.train.images]
    found = features.of([one.path for one in images], never).features.double().numpy()
    return found, np.array([one.label for one in images])


def test_sums_of_all_nodes_classify_as_one_owner_of_all_images(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    used, objective = played(
        model, nodes, features, share="sums", few_images=True, predict="global"
    )
    x, y = all_images(nodes, features)
    head = Head(Sums.of(x, y, CLASSES), objective.template)
    ratio, heat = used["a"]["choice"][1].astype(int)
    choice = Choice(RATIOS[ratio], HEATS[heat])
    expected = choice.logits(head.gauss(x, CLASSES), objective.prompt(x, CLASSES))
    for name in NAMES:
        found = _logits(objective, used[name], features, nodes)
        assert np.abs(_centred(found) - _centred(expected)).max() < 1e-4, name


def by_places(sums: Floats) -> Floats:
    """Return rows [C, 1 + D] of all classes as a state keeps them, [C, 2 + D]."""
    return np.column_stack([np.arange(len(sums)), sums])


def _logits(
    objective: Objective, used: Tensors, features: Features, nodes: list[NodeData]
) -> np.ndarray:
    images = [one.path for data in nodes for one in data.train.images]
    batch = Batch(features=features.of(images, never).features)
    found = objective.classifier(leaves(used, torch.device("cpu")), CLASSES)(batch)
    return np.asarray(found.numpy())


def _centred(logits: np.ndarray) -> np.ndarray:
    return np.asarray(logits - logits.mean(axis=1, keepdims=True))


def test_means_leave_second_moments_at_home_and_personal_draws_to_own_means(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    used, objective = played(model, nodes, features)
    assert not any(name.startswith(rows.SECOND) for name in used["a"])
    assert used["a"]["own_moment"].shape == (16, 16)
    mesh = Mesh(objective, {n: o.astype(np.float64) for n, o in used["a"].items()}, CLASSES)
    assert mesh.personal(CLASSES[:2])
    assert not mesh.personal((*CLASSES, "camel"))
    assert mesh.head is not None
    x, _ = all_images(nodes, features)
    lonely = {**mesh._arrays, rows.WORSE: np.full(rows.TABLE, -1.0)}
    together = Mesh(objective, lonely, CLASSES)
    assert not together.alone
    worth = together.head.worth(together.own) if together.head and together.own else 0.0
    drawn = together.choice(0).logits(
        mesh.head.gauss(x, CLASSES, together.own, worth), objective.prompt(x, CLASSES)
    )
    assert np.allclose(together.logits(x, CLASSES), drawn)


def test_a_node_whose_images_say_so_predicts_alone(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    used, objective = played(model, nodes, features)
    arrays = {n: o.astype(np.float64) for n, o in used["a"].items()}
    arrays[rows.WORSE] = np.full(rows.TABLE, 0.1)
    mesh = Mesh(objective, arrays, CLASSES)
    assert mesh.alone
    assert mesh.own is not None
    x, _ = all_images(nodes, features)
    head = Head(mesh.own, objective.template)
    expected = mesh.choice(0).logits(head.gauss(x, CLASSES), objective.prompt(x, CLASSES))
    assert np.allclose(mesh.logits(x, CLASSES), expected)


def test_it_says_which_classifier_answers(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    used, objective = played(model, nodes, features)

    def said(tensors: Tensors, *classes: str) -> str:
        return objective.describe_classifier(leaves(tensors, torch.device("cpu")), classes)

    assert said(used["a"], *CLASSES).startswith(
        "this node classifies by the class means of its own images, mixed"
    )
    assert said(used["a"], *CLASSES, "camel").startswith(
        "this node classifies by the class means of the mesh, and by"
    )
    assert said(used["a"], "camel", "lemon").startswith("no node has images of these")
    alone = Tensors({**used["a"], rows.WORSE: np.full(rows.TABLE, 0.1)}, used["a"].classes)
    assert said(alone, *CLASSES).startswith(
        "this node classifies by the class means of its own images alone"
    )
    others, _ = played(model, nodes, features, predict="global")
    config = GDAConfig(predict="global")
    mesh = Objective(model, TuningSettings(), config)
    assert mesh.describe_classifier(leaves(others["a"], torch.device("cpu")), CLASSES).startswith(
        "this node classifies by the class means of the mesh"
    )
    assert said(objective.initial(0), *CLASSES).startswith(
        "this node classifies by the hand-written prompt"
    )


def test_a_list_with_unseen_classes_gives_the_prompt_more_weight(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    used, objective = played(model, nodes, features)
    mesh = Mesh(objective, {n: o.astype(np.float64) for n, o in used["a"].items()}, CLASSES)
    assert mesh.head is not None
    x, _ = all_images(nodes, features)
    joint = (*CLASSES, "camel")
    voted = mesh.choice(1)
    expected = voted._replace(ratio=max(voted.ratio, MIXED_RATIO)).logits(
        mesh.head.gauss(x, joint), objective.prompt(x, joint)
    )
    assert np.allclose(mesh.logits(x, joint), expected)


@pytest.mark.parametrize("asked", [CLASSES, (*CLASSES, "camel"), ("camel", "lemon")])
def test_one_product_gives_the_same_logits_as_the_node(
    model: Backbone, nodes: list[NodeData], features: Features, asked: tuple[str, ...]
) -> None:
    used, objective = played(model, nodes, features)
    config, tuning = GDAConfig(), TuningSettings()
    weights, bias = affine(model, tuning, Objective, config, used["a"], asked)
    x = torch.from_numpy(all_images(nodes, features)[0]).float()
    classify = objective.classifier(leaves(used["a"], torch.device("cpu")), asked)
    mesh = Mesh(objective, {n: o.astype(np.float64) for n, o in used["a"].items()}, CLASSES)
    expected = torch.from_numpy(mesh.logits(x.double().numpy(), asked)).float()
    assert torch.allclose(classify(Batch(features=x)), expected, atol=1e-4)
    assert np.allclose(x.numpy() @ weights.T + bias, expected.numpy(), atol=1e-4)
    assert as_texts(weights, bias) is None


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
    model: Backbone,
    nodes: list[NodeData],
    features: Features,
    order: tuple[int, ...],
    peers: str,
    said: str,
) -> None:
    """One peer swapped its labels, or this node did: then most peers contradict it."""
    used, objective = played(model, nodes, features)
    arrays = {n: o.astype(np.float64) for n, o in used["a"].items()}
    arrays[rows.ALONE][2] = 1.0  # as if the node's own classifier were always right
    own = rows_of(sums_of(arrays[rows.OWN], CLASSES))
    arrays |= {rows.NODE + name: by_places(own[list(order)]) for name in peers}
    mesh = Mesh(objective, arrays, CLASSES)
    wrong = {name for at, name in enumerate(CLASSES) if order[at] != at}
    assert {name: set(found) for name, found in mesh.doubted.items()} == (
        dict.fromkeys(peers, wrong) if wrong else {}
    )
    assert all(set(one.classes) == set(CLASSES) - wrong for one in mesh.peers)
    note = mesh.answers(CLASSES)
    assert said in note
    assert ("check the labels" in note) == (len(peers) > 1)


def test_a_million_claimed_images_weigh_as_ten_times_the_median(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    used, objective = played(model, nodes, features)
    arrays = {n: o.astype(np.float64) for n, o in used["a"].items()}
    own = sums_of(arrays[rows.OWN], CLASSES)
    many = Sums(own.classes, own.counts * 1e5, own.sums * 1e5)
    arrays[rows.NODE + "b"] = by_places(rows_of(many))
    mesh = Mesh(objective, arrays, CLASSES)
    assert [one.counts.tolist() for one in mesh.peers] == [(10 * own.counts).tolist()]


def test_a_node_whose_peers_have_such_images_is_not_better_off_alone(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    """Its images are far apart, so alone it would choose the lowest temperature."""
    objective, generator = Objective(model, TuningSettings(), GDAConfig()), np.random.default_rng(1)
    names = [name for name in CLASSES for _ in range(5)]
    x = np.eye(16)[[CLASSES.index(name) for name in names]] + generator.normal(0, 0.02, (20, 16))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    own = Sums.of(x, [CLASSES.index(name) for name in names], CLASSES)
    lonely, place = objective._alone(own, x, names)
    arrays = {rows.OWN: rows_of(own), rows.OWN_MOMENT: x.T @ x, rows.ALONE: place}
    mesh = Mesh(objective, {**arrays, rows.NODE + "b": by_places(rows_of(own))}, CLASSES)
    _, worse = mesh.tables(x, names, lonely)
    assert place[1] == 0, "the lowest temperature"
    assert (worse <= 0).all()


def test_a_round_that_ends_after_its_sums_keeps_what_is_known_about_peers(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    objective, known = Objective(model, TuningSettings(), GDAConfig()), rows.ALONE
    x, labels = torch.eye(16)[:4], torch.arange(4)
    before = Tensors({PRIVATE + known: np.array([1.0, 2.0, 0.9])}, ())
    job = Job(round=2, stage=SUMS, tensors=objective.initial(1), seed=1, carry=before)
    carry = objective.fit(job, x, labels, CLASSES, 1).carry
    assert carry[PRIVATE + known] == pytest.approx([1.0, 2.0, 0.9])
    assert carry.classes == CLASSES


def test_surely_better_takes_the_standard_error_of_a_sample() -> None:
    worse = [0.5, 1.0, 4.0]
    expected = fmean(worse) - SURELY * stdev(worse) / len(worse) ** 0.5
    assert _surely(np.array(worse)) == pytest.approx(expected)


def test_a_class_of_too_few_images_is_neither_named_nor_counted(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    counts = np.bincount([one.label for one in nodes[0].train.images], minlength=4)
    least = int(counts.min()) + 1
    used, _ = played(model, nodes, features, least=least)
    sent = rows.kept_in(used["b"], used["b"].classes)["a"].classes
    assert sent == tuple(name for at, name in enumerate(CLASSES) if counts[at] >= least)
    assert used["a"]["own"][:, 0].sum() == len(nodes[0].train.images), "the node keeps its own"
    objective = Objective(model, TuningSettings(), GDAConfig())
    learner = TorchLearner(
        model, objective, nodes[0], TuningSettings(), features, least_images=least
    )
    enough = [at for at in range(len(CLASSES)) if counts[at] >= least]
    assert learner.told == (tuple(CLASSES[at] for at in enough), counts[enough].sum())
    stage = Job(round=1, stage=SUMS, tensors=learner.initial(1), seed=1, measure=False)
    assert learner.tune(stage, never, ignore).samples == counts[enough].sum()


def test_sums_of_few_images_are_refused_in_a_sentence(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    with pytest.raises(
        DataError, match=r"fewer than 64 \(four times the 16 dimensions .*\) members"
    ):
        played(model, nodes, features, share="sums")


def test_classes_that_no_node_has_get_the_choice_for_unseen_classes(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    used, objective = played(model, nodes, features)
    mesh = Mesh(objective, {n: o.astype(np.float64) for n, o in used["a"].items()}, CLASSES)
    assert mesh.head is not None
    x, _ = all_images(nodes, features)
    unknown = ("camel", "lemon")
    expected = mesh.choice(2).logits(mesh.head.gauss(x, unknown), objective.prompt(x, unknown))
    assert np.allclose(mesh.logits(x, unknown), expected)
    empty = Mesh(objective, {"rows": np.zeros((0, 17))}, ())
    assert np.array_equal(empty.logits(x, unknown), objective.prompt(x, unknown))


class Growing:
    """A node whose images come and go; each message is computed after a restart."""

    def __init__(self, model: Backbone, least: int = 5, **set_: Any) -> None:
        self.objective = Objective(model, TuningSettings(), GDAConfig(**set_))
        self.size, self.least = self.objective.width, least
        self.carry = Tensors({})

    def message(self, *images: tuple[str, int], noise: float = 0.0) -> dict[str, bytes]:
        """Return what the node sends of each class. images: a class, and which of its images."""
        classes = tuple(sorted({name for name, _ in images}))
        seeds = [int.from_bytes(name.encode()[:2], "big") * 1000 + at for name, at in images]
        x = np.array([np.random.default_rng(seed).normal(size=self.size) for seed in seeds])
        x = x / np.linalg.norm(x, axis=1, keepdims=True) + noise
        y = torch.tensor([classes.index(name) for name, _ in images])
        empty = self.objective.initial(1)
        job = Job(round=1, stage=SUMS, tensors=empty, seed=1, carry=self.carry)
        digests = [f"{name} {at}".encode() for name, at in images]
        found = self.objective.fit(job, torch.from_numpy(x), y, classes, self.least, digests)
        self.carry = Tensors(dict(found.carry), found.carry.classes)
        sent = found.tensors
        parts = {name: sent["rows"][at].tobytes() for at, name in enumerate(sent.classes)}
        return {**parts, **({"moment": sent["moment"].tobytes()} if "moment" in sent else {})}


def some(name: str, *places: int) -> list[tuple[str, int]]:
    return [(name, at) for at in places]


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        (range(10), range(11), False),
        (range(10), range(14), False),
        (range(10), range(15), True),
        (range(10), range(1, 10), False),
        (range(10), range(4, 10), False),
        (range(10), range(5, 10), True),
        (range(10), range(2, 12), False),
        (range(10), range(3, 12), True),
        (range(5), range(4), False),
        (range(1000), range(1001), False),
    ],
)
def test_a_class_is_sent_again_once_so_many_images_changed(
    model: Backbone, before: range, after: range, sent: bool
) -> None:
    """The difference of two messages would tell the feature of the images that changed."""
    node, other = Growing(model), some("bee", *range(6))
    first = node.message(*some("ant", *before), *other)
    second = node.message(*some("ant", *after), *other, noise=1e-6)
    assert second["bee"] == first["bee"], "another rounding of features is no change"
    assert (second["ant"] != first["ant"]) == sent
    if not sent:  # changes add up, over any number of messages
        for more in range(100, 105):
            last = node.message(*some("ant", *after, *range(100, more + 1)), *other)
        assert last["ant"] != first["ant"]


def test_a_class_of_just_enough_images_is_sent_and_one_of_fewer_is_not(model: Backbone) -> None:
    found = Growing(model).message(*some("ant", *range(5)), *some("bee", *range(4)))
    assert set(found) == {"ant"}


def test_a_class_that_comes_back_tells_no_single_image(model: Backbone) -> None:
    node, other = Growing(model), some("bee", *range(6))
    first = node.message(*some("ant", *range(10)), *other)
    assert "ant" not in node.message(*some("ant", *range(4)), *other)
    assert "ant" not in node.message(*other)
    assert node.message(*some("ant", *range(9)), *other) == first
    assert node.message(*some("ant", *range(15)), *other)["ant"] != first["ant"]


def test_a_second_moment_is_sent_again_with_many_changes_only(model: Backbone) -> None:
    node, needed = Growing(model, share="sums"), 4 * 16
    first = node.message(*some("ant", *range(needed)), *some("bee", 1, 2))
    for more in (1, 5, needed - 1):
        changed = some("ant", *range(needed + more))
        assert node.message(*changed, *some("bee", 1, 2, 3)) == first
    assert node.message(*some("ant", *range(2 * needed)))["moment"] != first["moment"]


def test_a_vote_is_computed_anew_once_so_many_images_changed(
    model: Backbone, nodes: list[NodeData], features: Features
) -> None:
    _, objective = played(model, nodes, features)
    x, y = all_images(nodes[:1], features)
    carry = Tensors({})

    def vote(count: int, least: int = 5) -> Tensors:
        nonlocal carry
        given = torch.from_numpy(x[:count]), torch.from_numpy(y[:count]), CLASSES, least
        digests = [bytes([at]) for at in range(count)]
        first = Job(round=1, stage=SUMS, tensors=objective.initial(1), seed=1, carry=carry)
        carry = objective.fit(first, *given, digests).carry
        own = {name: carry[PRIVATE + name] for name in (rows.OWN, rows.OWN_MOMENT)}
        reference = Tensors(own, carry.classes)
        second = Job(round=1, stage=LOSSES, tensors=EMPTY, seed=1, carry=carry, reference=reference)
        found = objective.fit(second, *given, digests)
        carry = found.carry
        return found.tensors

    before = vote(12)
    assert vote(13) == vote(16) == before
    assert vote(17) != before
