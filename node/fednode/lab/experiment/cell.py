"""One run of one method: all nodes in the simulator with the torch learner, then every test.

Nodes share one frozen model and one memory of features. Figures are of what a node would use: its
own tuned prompts with ZeroDFL and local training, the merged ones with methods that share a state,
or what the guard chose in their place.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from fednode import registry
from fednode.clip import backbone
from fednode.core.policy import start_seed
from fednode.core.settings import LAN, StartSettings
from fednode.core.types import EMPTY, Json, Snapshot, Tensors
from fednode.data.base import NodeData, Split
from fednode.errors import FednodeError
from fednode.lab.experiment import classes, leak
from fednode.lab.experiment.classes import Results
from fednode.lab.experiment.files import learns, settings_of
from fednode.lab.experiment.scene import Scene
from fednode.lab.experiment.settings import Experiment, MethodSettings
from fednode.lab.simulate.byzantine import FLIPPED, liar
from fednode.lab.simulate.ends import consensus_distance
from fednode.learn.cache import FeatureCache
from fednode.learn.context import ContextObjective
from fednode.learn.evaluation import Evaluation
from fednode.learn.features import Features
from fednode.learn.learner import Learner
from fednode.learn.objective import Objective
from fednode.learn.private import PrivateLearner
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.settings.read import Settings, start_of
from fednode.sim.setup import Setup
from fednode.sim.world import World

LIMIT_S: Final = 1e6
"""Virtual seconds, far more than any run takes."""
# Everyone is up from the start, and nobody dies: probes would only fill the meters.
STILL: Final = replace(LAN, probe_interval_s=1e5, sync_interval_s=1e6)
Scores = dict[str, dict[str, float]]
"""Accuracy (0..1) by test and node."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What all runs of one process have in common."""

    frozen: backbone.Backbone
    features: Features
    cache: FeatureCache | None = None


class Judge:
    """Test prompts, each only once: nodes that share a state have the same ones."""

    def __init__(
        self,
        parts: Parts,
        objective: Objective,
        tuning: TuningSettings,
        own: Mapping[str, Objective] | None = None,
    ) -> None:
        """Take what prompts mean. own: by node, if the nodes' data sets have texts of their own."""
        self._parts, self._objective, self._tuning = parts, objective, tuning
        self._own = own or {}
        self._learners: dict[Split, TorchLearner] = {}
        self._known: dict[tuple[Split, str], float] = {}
        self._results: dict[tuple[Split, str], Evaluation] = {}

    def scores(self, scene: Scene, prompts: Mapping[str, Tensors]) -> Scores:
        """Return the accuracy of each node's prompts in each of its tests; none is zero-shot."""
        return {
            test.name: {
                name: self._score(split, prompts.get(name, EMPTY), name)
                for name, split in test.images.items()
            }
            for test in scene.tests
        }

    def results(self, scene: Scene, prompts: Mapping[str, Tensors]) -> Results:
        """Return the results by class of each node's prompts in its tests that have images."""
        found: Results = {}
        for test in scene.tests:
            for name, split in test.images.items():
                if split.images:
                    found.setdefault(test.name, {})[name] = self._result(
                        split, prompts.get(name, EMPTY), name
                    )
        return found

    def _score(self, split: Split, prompts: Tensors, name: str) -> float:
        key = (split, prompts.digest)
        if key not in self._known:
            found = self._learner(split, name).evaluate(prompts, lambda: False)
            self._known[key] = found.get("own", float("nan"))
        return self._known[key]

    def _result(self, split: Split, prompts: Tensors, name: str) -> Evaluation:
        key = (split, prompts.digest)
        if key not in self._results:
            self._results[key] = self._learner(split, name).results(prompts)["own"]
            self._known[key] = self._results[key].accuracy
        return self._results[key]

    def _learner(self, split: Split, name: str) -> TorchLearner:
        if split not in self._learners:
            nothing = Split(split.classes, ())
            self._learners[split] = TorchLearner(
                self._parts.frozen,
                self._own.get(name, self._objective),
                NodeData(train=nothing, validation=nothing, own=split),
                self._tuning,
                self._parts.features,
            )
        return self._learners[split]


def _setup(settings: Settings, scene: Scene, seed: int) -> Setup:
    """Return what the nodes of a scene share in the simulator."""
    return Setup(
        policy=settings.policy.kind,
        config=settings.policy.config,
        rounds=replace(settings.rounds, start=StartSettings(len(scene.clients) - 1)),
        seed=seed,
        membership=STILL,
        guard=settings.guard,
        domains={client.name: client.domain for client in scene.clients},
        start=start_of(settings),
    )


def run(
    experiment: Experiment, method: MethodSettings, seed: int, scene: Scene, parts: Parts
) -> dict[str, Json]:
    """Return the outcome of one method on one scene, as JSON."""
    began = time.monotonic()
    if not learns(method):
        tuning = TuningSettings(**{**experiment.tuning, **method.tuning})
        own = _own_texts(experiment, method, scene, tuning, partial(ContextObjective, parts.frozen))
        judge = Judge(parts, ContextObjective(parts.frozen, tuning), tuning, own)
        return {**_judged(judge, scene, {}), "seconds": time.monotonic() - began}
    settings = settings_of(experiment, method, experiment.title, scene.domains)
    kind, config = settings.policy.kind, settings.policy.config
    for client in scene.clients:
        settings_fault = kind.settings_fault(config, settings.rounds, client.domain)
        if settings_fault:
            raise FednodeError(f"{method.label}: {settings_fault}")
    made = partial(registry.objective(kind.name), parts.frozen, config=config)
    objective: Objective = made(settings.tuning)
    own = _own_texts(experiment, method, scene, settings.tuning, made)
    scene, lying = _among_liars(scene, method, seed)
    plan = _setup(settings, scene, seed)
    rounds = plan.rounds
    world = World(seed, memorable=False)
    diary = _Diary(len(scene.clients), experiment.curve_every, rounds.max, settings.guard.keep_best)
    world.watch = diary.note
    with tempfile.TemporaryDirectory(prefix="fednode-") as accounts:
        every = {client.name: own.get(client.name, objective) for client in scene.clients}
        learners = _learners(settings, scene, every, parts, Path(accounts), seed)
        heard = {
            name: leak.Overheard(told, inner, _tested(experiment, scene, name))
            for name, (told, inner) in learners.items()
            if experiment.leak and name not in lying
        }
        tongues = lying if method.lie != FLIPPED else ()
        told = {name: one for name, (one, _) in learners.items()}
        _play(world, plan, method, cast("dict[str, Learner]", {**told, **heard}), tongues)
    trained = time.monotonic() - began
    judge = Judge(parts, objective, settings.tuning, own)
    judged = _judged(judge, scene, diary.kept[rounds.max])
    curve = {
        str(number): _json(judge.scores(scene, prompts))
        for number, prompts in sorted(diary.kept.items())
    }
    shapes = objective.initial(seed).shapes
    leaks = [heard[name].figures() for name in sorted(heard)]
    return {
        **judged,
        "curve": curve,
        "loss": list(diary.losses),
        "consensus": list(diary.distances),
        "bytes": {phase: asdict(one) for phase, one in sorted(world.traffic.items())},
        "paper_bytes": kind.paper_bytes(config, shapes, rounds.max, len(learners)),
        "nodes": len(scene.clients),
        "rounds": rounds.max,
        "leak": leak.mean_of(leaks) if leaks else {},
        "warnings": sorted(
            {
                f"{name}: {record.text}"
                for name, host in world.hosts.items()
                for record in host.records
                if record.level in {"warning", "error"}
            }
        )[:20],
        "training_seconds": trained,
        "seconds": time.monotonic() - began,
    }


def _judged(judge: Judge, scene: Scene, prompts: Mapping[str, Tensors]) -> dict[str, Any]:
    """Return the results by class and the accuracies of prompts, as JSON."""
    by_class = classes.packed(judge.results(scene, prompts))
    return {"scores": _json(judge.scores(scene, prompts)), "by_class": by_class}


def _own_texts(
    experiment: Experiment,
    method: MethodSettings,
    scene: Scene,
    tuning: TuningSettings,
    make: Callable[[TuningSettings], Objective],
) -> dict[str, Objective]:
    """Return the objectives of nodes whose data set has a template of its own, by node."""
    texts = {
        client.name: experiment.template_of(method, client.domain, tuning.template)
        for client in scene.clients
    }
    made = {
        text: make(replace(tuning, template=text))
        for text in dict.fromkeys(texts.values())
        if text != tuning.template
    }
    return {name: made[text] for name, text in texts.items() if text in made}


def _learners(
    settings: Settings,
    scene: Scene,
    objectives: Mapping[str, Objective],
    parts: Parts,
    accounts: Path,
    seed: int,
) -> dict[str, tuple[Learner, TorchLearner]]:
    """Return what each node trains with, clipped and blurred where that is set, and what is inside.

    accounts: a folder for the counts of releases. The noise is drawn from the seed: an experiment
    is repeatable, and its noise protects nobody.
    """
    found: dict[str, tuple[Learner, TorchLearner]] = {}
    for at, client in enumerate(scene.clients):
        objective = objectives[client.name]
        inner = TorchLearner(parts.frozen, objective, client.data, settings.tuning, parts.features)
        told: Learner = inner
        if settings.privacy.clip is not None:
            own = accounts / client.name
            own.mkdir()
            noise = np.random.default_rng([seed, at])
            first = start_seed(start_of(settings), seed, client.name)
            told = PrivateLearner(inner, settings.privacy, first, own, noise)
        found[client.name] = (told, inner)
    return found


def _tested(experiment: Experiment, scene: Scene, name: str) -> Split:
    """Return the test images from where a node's own are; none where its domain is left out."""
    wanted = {"in-domain": "", "base-to-new": "own"}.get(experiment.protocol.kind)
    for test in scene.tests:
        if wanted is not None and test.name.endswith(wanted) and name in test.images:
            return test.images[name]
    return Split((), ())


def _play(
    world: World,
    plan: Setup,
    method: MethodSettings,
    learners: Mapping[str, Learner],
    tongues: tuple[str, ...],
) -> None:
    """Run all rounds; tongues: nodes that send what `lie` says. Raise FednodeError."""
    world.place(plan, learners)
    for name in tongues:
        names, first = tuple(sorted(learners)), plan.first(name, learners[name])
        chance = random.Random(f"{plan.seed} {name}")
        world.hosts[name].liar = liar(method.lie, names, chance, first)
    world.start(*sorted(learners))
    over = world.run(lambda: bool(world.errors) or world.finished(), LIMIT_S)
    if world.errors:  # a daemon would try again; here it would fail again
        raise FednodeError(f"{method.label}: {world.errors[0]}")
    if not over:
        raise FednodeError(f"{method.label} did not end within {LIMIT_S:g} virtual seconds.")


def _among_liars(scene: Scene, method: MethodSettings, seed: int) -> tuple[Scene, tuple[str, ...]]:
    """Return the scene in which some nodes lie, and who: only the others are tested."""
    order = list(scene.clients)
    random.Random(f"liars {seed}").shuffle(order)
    honest = Counter(client.domain for client in order)
    lying: set[str] = set()
    for client in order:
        if len(lying) < method.liars and honest[client.domain] > 1:  # each domain keeps one
            honest[client.domain] -= 1
            lying.add(client.name)
    if len(lying) < method.liars:
        raise FednodeError(
            f"{method.label}: liars is {method.liars}; at most {len(lying)} of {len(order)} nodes "
            "can lie where each domain keeps one that does not."
        )
    tests = tuple(
        replace(test, images={one: split for one, split in test.images.items() if one not in lying})
        for test in scene.tests
    )
    flipped = lying if method.lie == FLIPPED else set()
    clients = tuple(
        replace(client, data=_flipped(client.data)) if client.name in flipped else client
        for client in scene.clients
    )
    return replace(scene, clients=clients, tests=tests), tuple(sorted(lying))


def _flipped(data: NodeData) -> NodeData:
    """Return training and validation images with the labels of the classes turned round."""
    last = len(data.train.classes) - 1

    def turned(split: Split) -> Split:
        return replace(
            split, images=tuple(replace(one, label=last - one.label) for one in split.images)
        )

    return replace(data, train=turned(data.train), validation=turned(data.validation))


class _Diary:
    """Follow a run: loss and distance in every round, prompts in some."""

    def __init__(self, nodes: int, every: int, last: int, keep_best: bool) -> None:
        self._nodes, self._every, self._last, self._keep_best = nodes, every, last, keep_best
        self._open: dict[int, dict[str, Snapshot]] = {}
        self.kept: dict[int, dict[str, Tensors]] = {}
        self.losses: list[float] = []
        self.distances: list[float] = []

    def note(self, name: str, snapshot: Snapshot) -> None:
        """Take a node's round; once all have had it, work out what it tells."""
        number = snapshot.policy.round
        held = self._open.setdefault(number, {})
        held[name] = snapshot
        if len(held) < self._nodes:
            return
        del self._open[number]
        prompts = {one: held[one].used(self._keep_best)[0] for one in sorted(held)}
        losses = [one.metrics["loss"] for one in held.values() if "loss" in one.metrics]
        self.losses.append(float(np.mean(losses)) if losses else float("nan"))
        self.distances.append(consensus_distance(list(prompts.values())))
        if number == self._last or (self._every and number % self._every == 0):
            self.kept[number] = prompts


def _json(scores: Scores) -> Any:
    return scores
