"""The control beside the mesh: what `fednode experiment` trains as `local`, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from fednode import registry
from fednode.app import alone
from fednode.core.events import Record
from fednode.core.types import EMPTY, MergeCounts, PolicyState, Snapshot, Tensors
from fednode.data.base import DataSettings
from fednode.data.load import load
from fednode.lab.experiment.cell import Prepared, judge, play, prepare
from fednode.lab.experiment.judge import Parts
from fednode.lab.experiment.scene import scene
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings
from fednode.learn.closed_form import ClosedFormLearner
from fednode.learn.features import Features
from fednode.learn.intervals import paired_bootstrap
from fednode.learn.learner import Cancelled
from fednode.learn.torch_learner import TorchLearner
from fednode.settings.read import Settings, Source, settings_of
from fednode.storage.store import Store
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
            self.prompts[method.label] = dict(played.diary.kept[ROUNDS])
            self.scores[method.label] = judge(prepared, played)["scores"]

    def daemon(self, site: str, **more: Any) -> tuple[Settings, TorchLearner]:
        """Return what a daemon of a site makes from its own settings and images."""
        data = DataSettings(path=str(self.images / site), shots=4, test=TEST, seed=1)
        tree = {"policy": {"name": "promptfl"}, "tuning": TUNING, "rounds": {"max": ROUNDS}, **more}
        settings = replace(settings_of(Source("test", tree)), data=data)
        objective = registry.objective(settings.policy.name)
        made = objective(self.frozen, settings.tuning, settings.policy.config)
        images = load(data, fixed=True)  # as an experiment draws them
        learner = TorchLearner(self.frozen, made, images, settings.tuning, self.features)
        return settings, learner


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("sites"))


def state(folder: Path, prompts: Tensors) -> Path:
    """Write the state directory of a node that finished with these prompts."""
    store = Store(folder)
    store.commit(Snapshot(PolicyState(ROUNDS, prompts, prompts), {}))
    store.close()
    return folder


@pytest.mark.parametrize(("name", "site"), list(zip(NODES, ("east", "west"), strict=True)))
def test_each_site_says_what_an_experiment_with_the_same_seeds_says(
    world: World, tmp_path: Path, name: str, site: str
) -> None:
    settings, learner = world.daemon(site)
    folder = state(tmp_path / name, world.prompts["promptfl"][name])
    verdict = alone.Comparing(settings, name, folder, learner)(never)
    assert verdict is not None
    assert verdict.round == ROUNDS
    said, *_ = verdict.texts
    control, _ = alone.read(folder)
    assert control == world.prompts["local"][name]
    mesh, by_itself = (100 * world.scores[one][site][name] for one in METHODS)
    zero_shot = 100 * learner.evaluate(EMPTY, never)["own"]
    rights = learner.tested(
        {
            "mesh": (learner, world.prompts["promptfl"][name]),
            "alone": (alone.control_of(settings, learner), world.prompts["local"][name]),
        },
        never,
    )["own"].rows
    low, high = (100 * one for one in paired_bootstrap(rights["mesh"], rights["alone"]))
    assert verdict.accuracies["own"] == pytest.approx(mesh / 100)
    if (rights["mesh"] == rights["alone"]).all():
        assert said.endswith("; mesh and alone are right on the same images")
        return
    assert said == (
        f"round {ROUNDS}: mesh {mesh:.1f}, alone {by_itself:.1f}, zero-shot {zero_shot:.1f} % "
        f"of 24 test images; gain over training alone: {mesh - by_itself:+.1f} points "
        f"(95 % interval {low:+.1f} to {high:+.1f})"
    )


def test_a_node_that_starts_again_reads_the_control(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, learner = world.daemon("east")
    folder = state(tmp_path / "a", world.prompts["promptfl"]["node-01"])
    trained: list[str] = []
    train = alone.train

    def counted(settings: Settings, name: str, *rest: Any) -> Tensors:
        trained.append(name)
        return train(settings, name, *rest)

    monkeypatch.setattr(alone, "train", counted)
    first = alone.Comparing(settings, "node-01", folder, learner)(never)
    assert alone.Comparing(settings, "node-01", folder, learner)(never) == first
    assert trained == ["node-01"]
    (folder / alone.FILE).write_bytes(b"torn")
    assert alone.Comparing(settings, "node-01", folder, learner)(never) == first
    longer = replace(settings, rounds=replace(settings.rounds, max=ROUNDS + 1))
    alone.Comparing(longer, "node-01", folder, learner)(never)
    assert len(trained) == 3, "more rounds are another budget"
    alone.Comparing(replace(settings, seed=settings.seed + 1), "node-01", folder, learner)(never)
    assert len(trained) == 4, "another seed is another control"


def test_a_control_that_is_told_to_stop_leaves_nothing(world: World, tmp_path: Path) -> None:
    settings, learner = world.daemon("east")
    folder = state(tmp_path / "a", world.prompts["promptfl"]["node-01"])
    with pytest.raises(Cancelled):
        alone.Comparing(settings, "node-01", folder, learner)(lambda: True)
    assert alone.read(folder) == (EMPTY, "")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"compare_alone": False}, "alone is unknown: compare_alone is false"),
        ({"rounds": {"max": 0, "min_interval_s": 1.0}}, "alone is unknown: rounds.max is 0, so"),
        ({"policy": {"name": "feddpt", "domains": ["a"]}}, "tunes visual prompts"),
    ],
)
def test_it_says_why_the_control_is_unknown(world: World, more: dict[str, Any], said: str) -> None:
    settings, learner = world.daemon("east", **more)
    prompts = learner.initial(1)
    (found,) = alone.compare(settings, learner, prompts, never, lambda _: prompts).texts
    assert said in found
    assert found.startswith("mesh ")


def test_until_the_last_round_it_says_when_the_comparison_comes(
    world: World, tmp_path: Path
) -> None:
    settings, learner = world.daemon("east")
    (said,) = alone.Comparing(settings, "a", tmp_path, learner).promise
    assert said.startswith(f"known after round {ROUNDS}: then this node trains alone")
    off, _ = world.daemon("east", compare_alone=False)
    (said,) = alone.Comparing(off, "a", tmp_path, learner).promise
    assert said == "this node does not train alone to compare: compare_alone is false"
    local, _ = world.daemon("east", policy={"name": "local"})
    assert alone.Comparing(local, "a", tmp_path, learner).promise == []
    assert alone.Comparing(settings, "a", tmp_path, ClosedFormLearner("a", rows=2)).promise == []


def test_a_node_that_merged_nothing_yet_is_told_so_and_nothing_else(
    world: World, tmp_path: Path
) -> None:
    settings, learner = world.daemon("east", policy={"name": "gda"}, rounds={"max": 0})
    prompts = alone.train(settings, "a", alone.control_of(settings, learner), never)
    store = Store(tmp_path)
    store.commit(Snapshot(PolicyState(3, prompts, prompts), {}, merge_counts=MergeCounts(3, 0)))
    store.close()
    comparing = alone.Comparing(settings, "a", tmp_path, learner)
    for _ in range(2):
        verdict = comparing(never)
        assert verdict is not None
        assert verdict.texts == [
            "not known yet: in 3 rounds this node merged nothing of a peer",
        ]
        assert (verdict.hints, verdict.accuracies, verdict.round) == ((), {}, 0)
    assert comparing.promise[0].startswith("known after the first round that merges")


def test_policy_local_is_alone_by_wish(world: World) -> None:
    settings, learner = world.daemon("east", policy={"name": "local"})
    prompts = world.prompts["local"]["node-01"]
    (found,) = alone.compare(settings, learner, prompts, never, lambda _: EMPTY).texts
    assert found.startswith(
        f"alone {100 * world.scores['local']['east']['node-01']:.1f}, zero-shot"
    )


def test_a_learner_without_images_compares_nothing(world: World) -> None:
    settings, _ = world.daemon("east")
    learner = ClosedFormLearner("a")
    verdict = alone.compare(settings, learner, EMPTY, never, lambda _: EMPTY)
    assert "closed-form" in verdict.texts[0]
    assert not verdict.hints


def test_a_learner_without_images_is_compared_without_torch() -> None:
    code = (
        "import sys\nfrom fednode.app import alone\nfrom fednode.core.types import EMPTY\n"
        "from fednode.learn.closed_form import ClosedFormLearner\n"
        "from fednode.settings.read import Source, settings_of\n"
        "settings = settings_of(Source('t', {'tuning': {'kind': 'closed-form'}}))\n"
        "learner = ClosedFormLearner('a')\n"
        "(said,) = alone.compare(settings, learner, EMPTY, lambda: False, lambda _: EMPTY).texts\n"
        "assert 'closed-form' in said\nassert 'torch' not in sys.modules\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_gda_is_compared_with_the_same_head_alone_when_its_classifier_changed(
    world: World, tmp_path: Path
) -> None:
    settings, learner = world.daemon("east", policy={"name": "gda"}, rounds={"max": 0})
    control = alone.control_of(settings, learner)
    used = alone.train(settings, "node-01", control, never)
    assert used.classes == learner.classes
    comparing = alone.Comparing(settings, "node-01", state(tmp_path / "a", EMPTY), learner)
    assert comparing.promise[0].startswith("known after the first round")
    assert comparing.due(Record("round.adopted", ""))
    assert not comparing.due(Record("round.deadline", ""))
    empty = learner.initial(1)
    folder = state(tmp_path / "b", empty)
    comparing = alone.Comparing(settings, "node-01", folder, learner)
    verdict = comparing(never)
    assert verdict is not None
    said, *_ = verdict.texts
    score = 100 * control.evaluate(used, never)["own"]
    assert f"alone {score:.1f}" in said
    assert alone.read(folder)[0] == used
    assert comparing(never) is None, "the classifier is the same"
    assert alone.Comparing(settings, "node-01", folder, learner).promise == [
        *verdict.texts,
        *verdict.hints,
    ], "a node that starts again shows the verdict before"
    store = Store(folder)
    store.commit(Snapshot(PolicyState(ROUNDS + 1, used, used), {}, merge_counts=MergeCounts(4, 1)))
    store.close()
    newer = comparing(never)
    assert newer is not None
    assert newer.texts[0].startswith(f"round {ROUNDS + 1}: ")
    assert alone.read(folder)[0] == used
    bounded, _ = world.daemon("east")
    ends = alone.Comparing(bounded, "node-01", folder, learner)
    assert ends.due(Record("life.finished", ""))
    assert not ends.due(Record("round.adopted", "", fields={"own": 0.5}))
