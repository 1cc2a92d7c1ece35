"""The control beside the mesh: what `fednode experiment` trains as `local`, bit for bit."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fednode import registry
from fednode.app import baseline
from fednode.app.baseline import Control, control_of, train
from fednode.app.state_dir import Tuned
from fednode.core.rounds.statements import COMBINE, STATEMENT, pack
from fednode.core.types import EMPTY, Job, MergeCounts, Tensors
from fednode.data.base import DataSettings, Split
from fednode.data.load import load
from fednode.errors import ModelError
from fednode.evaluation.gain import FOLDS, folds_of
from fednode.lab.experiment.cell import Parts, Prepared, judge, play, prepare
from fednode.lab.experiment.scene import scene
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings
from fednode.learn.features import Features
from fednode.learn.torch_learner import TorchLearner
from fednode.settings.read import Settings, Source, settings_of
from tests.unit.lab.experiment.pictures import domains
from tests.unit.policies.tiny import frozen

TUNING = {"context_length": 3, "batch_size": 4, "epochs": 1, "lr": 0.1}
ROUNDS, TEST = 3, 0.5
METHODS = ("promptfl", "local")
NODES = ("node-01", "node-02")


def never() -> bool:
    return False


class World:
    """Two sites' images, an experiment on them, and the settings of the same sites' daemons."""

    def __init__(self, folder: Path) -> None:
        self.images = domains(folder, ("east", "west"), images=12)
        self.frozen = frozen()
        self.features = Features(self.frozen)
        # The control tunes as the node does, not with the defaults of policy local.
        tuning = asdict(
            settings_of(Source("t", {"policy": {"name": "promptfl"}, "tuning": TUNING})).tuning
        )
        experiment = Experiment(
            title="t",
            data=DataPart(path=str(self.images), shots=4, test=TEST),
            methods=tuple(MethodSettings(label=one, policy={"name": one}) for one in METHODS),
            protocol=ProtocolSettings("in-domain"),
            tuning=tuning,
            rounds=ROUNDS,
            seeds=(1,),
        )
        made, parts = scene(experiment, 1, ""), Parts(self.frozen, self.features)
        self.prompts: dict[str, dict[str, Tensors]] = {}
        self.scores: dict[str, dict[str, dict[str, float]]] = {}
        for method in experiment.methods:
            prepared: Prepared = prepare(experiment, method, 1, made, parts)
            played = play(prepared)
            self.prompts[method.label] = dict(played.kept[ROUNDS])
            self.scores[method.label] = judge(prepared, played)["scores"]

    def daemon(self, site: str, **more: Any) -> tuple[Settings, TorchLearner]:
        """Return what a daemon of a site makes from its own settings and images."""
        data = DataSettings(path=str(self.images / site), shots=4, test=TEST, seed=1)
        tree = {"policy": {"name": "promptfl"}, "tuning": TUNING, "rounds": {"max": ROUNDS}, **more}
        name = NODES[site == "west"]
        settings = replace(settings_of(Source("test", tree)), data=data, name=name)
        objective = registry.prompt_module(settings.policy.name)
        made = objective(self.frozen, settings.tuning, settings.policy.config)
        images = load(data, fixed=True)  # as an experiment draws them
        learner = TorchLearner(self.frozen, made, images, settings.tuning, self.features)
        return settings, learner


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("sites"))


def tuned(folder: Path, settings: Settings, prompts: Tensors, **more: Any) -> Tuned:
    """Return the content of the state directory of a node that finished with these prompts."""
    folder.mkdir(exist_ok=True)
    facts = {"round": ROUNDS, "rounds": ROUNDS, "classes": (), "backbone": "", **more}
    return Tuned(folder=folder, settings=settings, prompts=prompts, **facts)


def compare(
    held: Tuned, learner: TorchLearner, control: Control | None
) -> tuple[list[str], list[str]]:
    """Return what `fednode eval` says of a node."""
    results = {"tuned": learner.results(held.prompts), "zero-shot": learner.results(EMPTY)}
    if control is not None and control.prompts:
        results["alone"] = control.learner.results(control.prompts)
    return baseline.compare(held, results, "" if control is None else control.unknown)


@pytest.mark.parametrize(("name", "site"), list(zip(NODES, ("east", "west"), strict=True)))
def test_each_site_says_what_an_experiment_with_the_same_seeds_says(
    world: World, tmp_path: Path, name: str, site: str
) -> None:
    settings, learner = world.daemon(site)
    held = tuned(tmp_path / name, settings, world.prompts["promptfl"][name])
    control = control_of(held, settings, learner)
    assert control is not None
    assert control.prompts == world.prompts["local"][name]
    (said,), _ = compare(held, learner, control)
    mesh, by_itself = (100 * world.scores[one][site][name] for one in METHODS)
    zero_shot = 100 * learner.evaluate(EMPTY, never)["own"]
    assert said.startswith(
        f"round {ROUNDS}: mesh {mesh:.1f}, alone {by_itself:.1f}, zero-shot {zero_shot:.1f} % "
        "of 24 test images; "
    )


def test_the_control_is_trained_once_while_settings_images_and_rounds_are_the_same(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, learner = world.daemon("east")
    other, _ = world.daemon("east", seed=2)
    _, west = world.daemon("west")
    trained: list[int] = []

    def counted(settings: Settings, number: int, *rest: Any) -> Tensors:
        trained.append(number)
        return train(settings, number, *rest)

    monkeypatch.setattr(baseline, "train", counted)
    held = tuned(tmp_path / "a", settings, world.prompts["promptfl"]["node-01"])

    def note(held: Tuned, settings: Settings = settings, learner: TorchLearner = learner) -> str:
        control = control_of(held, settings, learner)
        assert control is not None
        assert control.prompts
        return control.note

    assert note(held).startswith(f"Trained the control, {ROUNDS} rounds on this node's images")
    assert note(held) == ""
    assert trained == [ROUNDS]
    (tmp_path / "a" / baseline.FILE).write_bytes(b"torn")
    assert note(held).startswith("Trained the control, ")
    again = "The control kept before is of other rounds, settings or images. Trained the control, 2"
    assert note(replace(held, rounds=2)).startswith(again)
    assert note(replace(held, rounds=2, settings=other), other).startswith(again[:60])
    assert note(replace(held, rounds=2, settings=other), other, west).startswith(again[:60])
    assert trained == [ROUNDS, ROUNDS, 2, 2, 2]


def test_fewer_rounds_train_fewer_rounds_of_the_same_schedule(world: World, tmp_path: Path) -> None:
    settings, learner = world.daemon("east")
    held = control_of(tuned(tmp_path, settings, EMPTY, rounds=0), settings, learner)
    assert held is not None
    control = held.learner
    steps: list[tuple[int, int]] = []
    first = train(settings, 1, control, lambda _, done, count: steps.append((done, count)))
    assert first != train(settings, ROUNDS, control)
    endless = replace(settings, rounds=replace(settings.rounds, max=0))
    assert train(endless, 2, control)
    assert steps == [(at, steps[0][1]) for at in range(1, steps[0][1] + 1)]
    train(settings, ROUNDS, control, lambda _, done, count: steps.append((done, count)))
    assert steps[-1] == (ROUNDS * steps[0][1], ROUNDS * steps[0][1])


def test_other_settings_or_images_use_a_kept_control_and_train_none(
    world: World, tmp_path: Path
) -> None:
    settings, learner = world.daemon("east")
    chosen, west = world.daemon("west")
    held = tuned(tmp_path / "a", chosen, world.prompts["promptfl"]["node-01"])
    control = control_of(held, settings, west)
    assert control is not None
    assert (control.prompts, control.note) == (EMPTY, "")
    (said,), _ = compare(held, west, control)
    assert said.endswith("; alone is unknown: `fednode eval` without --set trains it")
    mine = control_of(replace(held, settings=settings), settings, learner)
    other = control_of(held, settings, west)
    assert mine is not None
    assert other is not None
    assert other.prompts == mine.prompts


def test_a_training_that_fails_is_said(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, learner = world.daemon("east")
    held = tuned(tmp_path / "a", settings, world.prompts["promptfl"]["node-01"])

    def fails(*_: Any) -> Tensors:
        raise ModelError("tuning diverged in round 1.")

    monkeypatch.setattr(baseline, "train", fails)
    (said,), _ = compare(held, learner, control_of(held, settings, learner))
    assert said.endswith("; alone is unknown: training it failed: tuning diverged in round 1")
    assert baseline.read(held.folder) == (EMPTY, {})


def test_visual_prompts_and_rounds_without_an_end_have_a_control_too(
    world: World, tmp_path: Path
) -> None:
    looks: dict[str, Any] = {"policy": {"name": "feddpt", "domains": ["a"]}}
    endless: dict[str, Any] = {"rounds": {"max": 0, "min_interval_s": 1.0}}
    for at, more in enumerate((looks, endless)):
        settings, learner = world.daemon("east", **more)
        held = tuned(tmp_path / str(at), settings, learner.initial(1), round=2, rounds=2)
        (said,), _ = compare(held, learner, control_of(held, settings, learner))
        assert ", alone " in said
        assert "unknown" not in said


def test_a_node_that_merged_nothing_yet_is_told_so_and_nothing_else(
    world: World, tmp_path: Path
) -> None:
    settings, learner = world.daemon("east", policy={"name": "gda"}, rounds={"max": 0})
    held = tuned(tmp_path / "a", settings, learner.initial(1), merge_counts=MergeCounts(3, 0))
    assert control_of(held, settings, learner) is None
    assert compare(held, learner, None) == (
        ["not known yet: in 3 rounds this node merged nothing of a peer"],
        [],
    )


def test_policy_local_is_alone_by_wish(world: World, tmp_path: Path) -> None:
    settings, learner = world.daemon("east", policy={"name": "local"})
    held = tuned(
        tmp_path / "a", settings, world.prompts["local"]["node-01"], merge_counts=MergeCounts(3, 0)
    )
    assert control_of(held, settings, learner) is None
    (said,), _ = compare(held, learner, None)
    score = 100 * world.scores["local"]["east"]["node-01"]
    assert said.startswith(f"round {ROUNDS}: alone {score:.1f}, zero-shot")


def test_gda_is_compared_with_the_same_head_alone(world: World, tmp_path: Path) -> None:
    settings, learner = world.daemon("east", policy={"name": "gda"}, rounds={"max": 0})
    held = tuned(tmp_path / "a", settings, learner.initial(1), merge_counts=MergeCounts(4, 1))
    control = control_of(held, settings, learner)
    assert control is not None
    assert control.prompts.classes == learner.classes
    assert control.note == "", "it takes no time that is worth a sentence"
    (said,), _ = compare(held, learner, control)
    score = 100 * control.learner.evaluate(control.prompts, never)["own"]
    assert f"alone {score:.1f}" in said
    prompts, facts = baseline.read(held.folder)
    assert prompts == control.prompts
    later = control_of(replace(held, round=9, rounds=9), settings, learner)
    assert later is not None
    assert baseline.read(held.folder) == (later.prompts, facts), "every round would give the same"


def test_with_gda_each_image_is_classified_without_its_fold(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a learner classifies it that trains on the training images of the other folds."""
    settings, learner = world.daemon("east", policy={"name": "gda"}, rounds={"max": 0})
    _, west = world.daemon("west", policy={"name": "gda"}, rounds={"max": 0})
    theirs = west.tune(
        Job(round=1, stage=STATEMENT, tensors=west.initial(1), seed=1), never, lambda _: None
    ).tensors
    known = pack({"west": theirs})
    held = Tensors({**learner.initial(1), **known}, known.classes)
    job = Job(round=1, stage=COMBINE, tensors=held, seed=1)
    fitted, told = learner.tune(job, never, lambda _: None).tensors, list[str]()
    monkeypatch.setattr(learner._features, "progress", lambda name, *_: told.append(name))
    found = learner.cross_validate(fitted, "tuned")
    assert "measuring tuned, leaving out part" in told
    assert found is not None
    assert found.folds == FOLDS
    data = learner.data
    every = sorted({*data.train.images, *data.own.images}, key=lambda image: image.path)
    assert found.images == len(every)
    assert not data.groups
    trained = [image in data.train.images for image in every]
    folds = folds_of([image.label for image in every], [str(one.path) for one in every], trained)
    rights, classes = np.zeros(len(every), np.bool_), data.train.classes
    for fold in range(FOLDS):
        here = [image for image, at in zip(every, folds, strict=True) if at == fold]
        rest = [image for image in data.train.images if image not in here]
        part = replace(data, train=Split(classes, tuple(rest)), own=Split(classes, tuple(here)))
        other = TorchLearner(world.frozen, learner.module, part, settings.tuning, world.features)
        other._public = learner._public
        fitted = other.tune(replace(job, measure=False), never, lambda _: None).tensors
        rights[folds == fold] = other.results(fitted)["own"].right
    assert found.right.tolist() == rights.tolist()
    assert 0 < rights.sum() < len(rights)
    handwritten = learner.cross_validate(EMPTY)
    assert handwritten is not None
    assert handwritten.truth.tolist() == found.truth.tolist()


def test_status_names_the_command_until_it_has_run(world: World, tmp_path: Path) -> None:
    settings, _ = world.daemon("east")
    promise: tuple[list[str], list[int]] = (["`fednode eval` says what the mesh brings"], [])
    assert baseline.comparison(settings, tmp_path) == promise
    baseline.keep_comparison(tmp_path, ["round 3: mesh 51.5", "a hint"], (40, 3, 5))
    said = baseline.comparison(settings, tmp_path)
    assert said == (["round 3: mesh 51.5", "a hint"], [40, 3, 5])
    for damaged in ("", "{", "[]", '{"sentences": 1, "counts": []}'):
        (tmp_path / baseline.COMPARISON).write_text(damaged)
        assert baseline.comparison(settings, tmp_path) == promise
    local, _ = world.daemon("east", policy={"name": "local"})
    assert baseline.comparison(local, tmp_path) == ([], [])
    formula = settings_of(Source("t", {"tuning": {"kind": "closed-form"}}))
    assert baseline.comparison(formula, tmp_path) == ([], [])
