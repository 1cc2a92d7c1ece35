"""One run of one method: all nodes in the simulator with the torch learner, then every test.

Nodes share one frozen model and one memory of features. Figures are of what a node would use: its
own tuned prompts with ZeroDFL and local training, the merged ones with methods that share a state,
or what the guard chose in their place.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from fednode import registry
from fednode.clip import model as clip
from fednode.conformance import require_hooks
from fednode.core.merge.mean import mean
from fednode.core.policy import start_seed
from fednode.core.rounds.exchange import participating
from fednode.core.settings import LAN, StartSettings
from fednode.core.types import EMPTY, Json, Message, Snapshot, Tensors
from fednode.data.base import NodeData, Split
from fednode.errors import FednodeError
from fednode.evaluation.results import Evaluation
from fednode.lab.experiment.cells import packed
from fednode.lab.experiment.files import learns, settings_of
from fednode.lab.experiment.scene import Scene
from fednode.lab.experiment.settings import Experiment, MethodSettings
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.lab.simulate.byzantine import FLIPPED, KINDS, Hostile
from fednode.lab.simulate.ends import consensus_distance
from fednode.learn.cache import FeatureCache
from fednode.learn.features import Features
from fednode.learn.learner import Learner, Release
from fednode.learn.privacy import Privacy
from fednode.learn.prompt_module import PromptModule
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.settings.read import Settings, start_of
from fednode.transports.framing import Traffic
from fednode.wire import codec
from fednode.wire.tensors import payload_bytes

Scores = dict[str, dict[str, float]]
"""Accuracy (0..1) by test and node."""
Results = dict[str, dict[str, Evaluation | None]]
"""Results by class, by test and node; None without images."""
LIMIT_S: Final = 1e6
"""Virtual seconds, far more than any run takes."""
WARNINGS_MAX: Final = 20
"""Most warnings that a cell's file holds."""
# Everyone is up from the start, and nobody dies: probes would only fill the meters.
STILL: Final = replace(LAN, probe_interval_s=1e5, sync_interval_s=1e6)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that all runs of one process have in common."""

    frozen: clip.FrozenClip
    features: Features
    cache: FeatureCache | None = None


def run(
    experiment: Experiment, method: MethodSettings, seed: int, scene: Scene, parts: Parts
) -> dict[str, Json]:
    """Return the outcome of one method on one scene, as JSON."""
    began = time.monotonic()
    prepared = prepare(experiment, method, seed, scene, parts)
    played = play(prepared) if learns(method) else None
    trained = time.monotonic() - began
    outcome = judge(prepared, played)
    if played is not None:
        outcome["training_seconds"] = trained
    return {**outcome, "seconds": time.monotonic() - began}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One method on one scene, ready to be played.

    lying: nodes. objective: with the method's text; modules: by node, with its data set's text.
    """

    experiment: Experiment
    method: MethodSettings
    seed: int
    parts: Parts
    settings: Settings
    scene: Scene
    lying: tuple[str, ...]
    objective: PromptModule
    modules: Mapping[str, PromptModule]


def prepare(
    experiment: Experiment, method: MethodSettings, seed: int, scene: Scene, parts: Parts
) -> Prepared:
    """Return a method's settings, objectives and liars; raise FednodeError if it cannot run."""
    settings = settings_of(experiment, method, experiment.title, scene.domains)
    kind, config = settings.policy.kind, settings.policy.config
    name = str(settings.policy.written["name"])  # `module:Class` of a user's own, or as kind.name
    for client in scene.clients:
        if fault := kind.settings_fault(config, settings.rounds, client.domain):
            raise FednodeError(f"{method.label}: {fault}")
    make = partial(registry.prompt_module(name), parts.frozen, config=config)
    module = make(settings.tuning)
    require_hooks(kind, config, module)
    modules, by_text = {}, {settings.tuning.template: module}  # equal texts share a module
    for client in scene.clients:
        text = experiment.template_of(method, client.domain, settings.tuning.template)
        if text not in by_text:
            by_text[text] = make(replace(settings.tuning, template=text))
        modules[client.name] = by_text[text]
    scene, lying = _among_liars(scene, method, seed) if learns(method) else (scene, ())
    return Prepared(
        experiment=experiment,
        method=method,
        seed=seed,
        parts=parts,
        settings=settings,
        scene=scene,
        lying=lying,
        objective=module,
        modules=modules,
    )


class Played:
    """What came of all rounds: loss and distance of every round, the prompts of some.

    kept: the prompts that each node uses, by round. world: after the last round.
    """

    def __init__(self, prepared: Prepared, world: World) -> None:
        self.world = world
        self.kept: dict[int, dict[str, Tensors]] = {}
        self.losses: list[float] = []
        self.distances: list[float] = []
        self._nodes = len(prepared.scene.clients)
        self._every, self._last = prepared.experiment.curve_every, prepared.settings.rounds.max
        self._keep_best = prepared.settings.guard.keep_best
        self._open: dict[int, dict[str, Snapshot]] = {}
        world.watch = self._note

    def _note(self, name: str, snapshot: Snapshot) -> None:
        """Take a node's round; once all have had it, work out what it tells."""
        number = snapshot.policy.round
        held = self._open.setdefault(number, {})
        held[name] = snapshot
        if len(held) < self._nodes:
            return
        del self._open[number]
        prompts = {node: held[node].used(self._keep_best)[0] for node in sorted(held)}
        losses = [state.metrics["loss"] for state in held.values() if "loss" in state.metrics]
        self.losses.append(float(np.mean(losses)) if losses else float("nan"))
        self.distances.append(consensus_distance(list(prompts.values())))
        if number == self._last or (self._every and number % self._every == 0):
            self.kept[number] = prompts


def play(prepared: Prepared) -> Played:
    """Run all rounds in the simulator; raise FednodeError if a node fails."""
    method, settings = prepared.method, prepared.settings
    seed, clients = prepared.seed, prepared.scene.clients
    plan = Setup(
        policy=settings.policy.kind,
        config=settings.policy.config,
        rounds=replace(settings.rounds, start=StartSettings(len(clients) - 1)),
        seed=seed,
        membership=STILL,
        guard=settings.guard,
        domains={client.name: client.domain for client in clients},
        start=start_of(settings),
    )
    world = World(seed, memorable=False)
    played, parts = Played(prepared, world), prepared.parts
    learners: dict[str, Learner] = {
        client.name: TorchLearner(
            parts.frozen,
            prepared.modules[client.name],
            client.data,
            settings.tuning,
            parts.features,
            least_images=settings.privacy.least_images,
        )
        for client in clients
    }
    world.place(plan, learners)
    for name in prepared.lying if method.lie != FLIPPED else ():
        names, first = tuple(sorted(learners)), plan.first(name, learners[name])
        chance = random.Random(f"{seed} {name}")
        world.hosts[name].liar = KINDS[method.lie](Hostile(names, chance, first))
    with tempfile.TemporaryDirectory(prefix="fednode-") as accounts:
        for name, release in _releases(prepared, learners, Path(accounts)).items():
            world.hosts[name].release = release
        world.start(*sorted(learners))
        over = world.run(lambda: bool(world.errors) or world.finished(), LIMIT_S)
    if world.errors:  # a daemon would try again; here it would fail again
        raise FednodeError(f"{method.label}: {world.errors[0]}")
    if not over:
        raise FednodeError(f"{method.label} did not end within {LIMIT_S:g} virtual seconds.")
    return played


def judge(prepared: Prepared, played: Played | None) -> dict[str, Any]:
    """Test the prompts of all rounds that were kept; without rounds, the hand-written prompt."""
    settings, scene, method = prepared.settings, prepared.scene, prepared.method
    judged = Judge(prepared.parts, prepared.modules, settings.tuning)
    if played is None:
        return _judged(judged, scene, {})
    world, rounds, kept = played.world, settings.rounds.max, played.kept
    if method.mean_at_end:
        kept = {number: _averaged(prompts) for number, prompts in kept.items()}
    traffic = _once(kept[rounds]) if method.mean_at_end else world.traffic
    last = _judged(judged, scene, kept[rounds])
    curve = {
        str(number): last["scores"] if number == rounds else judged.scores(scene, prompts)
        for number, prompts in sorted(kept.items())
    }
    kind, config = settings.policy.kind, settings.policy.config
    shapes = prepared.objective.initial(prepared.seed).shapes
    clients = len(scene.clients)
    warnings = {
        f"{name}: {record.text}"
        for name, host in world.hosts.items()
        for record in host.records
        if record.level in {"warning", "error"}
    }
    return {
        **last,
        "curve": curve,
        "loss": list(played.losses),
        "consensus": list(played.distances),
        "bytes": {phase: asdict(meter) for phase, meter in sorted(traffic.items())},
        "paper_bytes": kind.paper_bytes(config, shapes, rounds, participating(config, clients)),
        "nodes": clients,
        "rounds": rounds,
        "warnings": sorted(warnings)[:WARNINGS_MAX],
    }


def _judged(judge: Judge, scene: Scene, prompts: Mapping[str, Tensors]) -> dict[str, Any]:
    results = judge.results(scene, prompts)
    return {"scores": _accuracies(results), "by_node": packed(results)}


def _accuracies(results: Results) -> Scores:
    return {
        test: {name: found.accuracy if found else math.nan for name, found in nodes.items()}
        for test, nodes in results.items()
    }


def _averaged(prompts: Mapping[str, Tensors]) -> dict[str, Tensors]:
    held = [prompts[name] for name in sorted(prompts)]
    equal = [1.0] * len(held)
    merged = Tensors({key: mean([tensors[key] for tensors in held], equal) for key in held[0]})
    return dict.fromkeys(prompts, merged)


def _once(prompts: Mapping[str, Tensors]) -> dict[str, Traffic]:
    """Return what it costs that each node sends its prompts to every other once, in float32."""
    traffic = Traffic()
    for name, tensors in prompts.items():
        message = Message(
            mesh="mean",
            fingerprint="",
            policy="local",
            sender=name,
            round=1,
            phase="prompts",
            tensors=tensors,
        )
        frame = len(codec.encode(message, "float32"))
        for _ in range(len(prompts) - 1):
            traffic.count(payload_bytes(message.tensors, "float32"), frame)
    return {"prompts": traffic}


def _releases(
    prepared: Prepared, learners: Mapping[str, Learner], accounts: Path
) -> dict[str, Release]:
    """Return what clips and blurs each node's reports, where that is set.

    accounts: a folder for the counts of releases. The noise is drawn from the seed: an experiment
    is repeatable, and its noise protects nobody.
    """
    settings, seed = prepared.settings, prepared.seed
    releases: dict[str, Release] = {}
    for at, name in enumerate(learners if settings.privacy.clip is not None else ()):
        own = accounts / name
        own.mkdir()
        noise = np.random.default_rng([seed, at])
        first = learners[name].initial(start_seed(start_of(settings), seed, name))
        releases[name] = Privacy(settings.privacy, first, own, noise).release
    return releases


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
        replace(
            test, images={node: split for node, split in test.images.items() if node not in lying}
        )
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
            split, images=tuple(replace(image, label=last - image.label) for image in split.images)
        )

    return replace(data, train=turned(data.train), validation=turned(data.validation))


class Judge:
    """Test prompts: in one call each only once, since nodes that share a state have the same."""

    def __init__(
        self, parts: Parts, modules: Mapping[str, PromptModule], tuning: TuningSettings
    ) -> None:
        """Take what prompts mean. modules: by node."""
        self._parts, self._modules, self._tuning = parts, modules, tuning
        self._learners: dict[Split, TorchLearner] = {}

    def scores(self, scene: Scene, prompts: Mapping[str, Tensors]) -> Scores:
        """Return the accuracy (nan without images) of each node's prompts in each of its tests."""
        return _accuracies(self.results(scene, prompts))

    def results(self, scene: Scene, prompts: Mapping[str, Tensors]) -> Results:
        """Return the results by class of each node's prompts in each of its tests.

        None without images. Nodes without prompts have the hand-written one.
        """
        known: dict[tuple[Split, str], Evaluation | None] = {}
        by_test: Results = {test.name: {} for test in scene.tests}
        for test in scene.tests:
            for name, split in test.images.items():
                used = prompts.get(name, EMPTY)
                key = (split, used.digest)
                if key not in known:
                    known[key] = self._learner(split, name).results(used).get("own")
                by_test[test.name][name] = known[key]
        return by_test

    def _learner(self, split: Split, name: str) -> TorchLearner:
        if split not in self._learners:
            nothing = Split(split.classes, ())
            self._learners[split] = TorchLearner(
                self._parts.frozen,
                self._modules[name],
                NodeData(train=nothing, validation=nothing, own=split),
                self._tuning,
                self._parts.features,
            )
        return self._learners[split]
