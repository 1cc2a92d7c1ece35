"""Choose the demo's hyperparameters on Caltech-101 classes that the demo does not use.

    python -m tools.search Caltech101_128px_q88.zip [--rounds 50] [--starts common] ...

The demo's classes are every second category by name; this takes the others, shared out the same
way: base and new halves, five nodes, eight shots, 24 images a class. Rule, fixed beforehand: among
the settings with which ZeroDFL is below zero-shot neither on base nor on new classes (among all
settings, if there is none), the one with the highest harmonic mean of ZeroDFL's base and new
accuracy, over three seeds. Every row prints local, tuned alike, beside it. The nodes run in this
process, in sync mode, so that the outcome does not hang on the machine's speed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fednode import registry
from fednode.clip import backbone
from fednode.clip.settings import ModelSettings
from fednode.core.settings import Initial, RoundSettings, StartSettings
from fednode.core.types import ZERO_SHOT
from fednode.data.base import DataSettings, NodeData, PartitionSettings
from fednode.data.load import load
from fednode.lab.experiment.figures import harmonic, markdown_table, mean
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.features import Features
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.settings.chosen import Chosen
from fednode.settings.read import chosen_of
from tools.builtin_images import IMAGES_PER_CLASS, by_category, encode, others

NODES: Final = 5
SEEDS: Final = (1, 2, 3)
RATES: Final = (0.003, 0.01, 0.03, 0.1)
ROUNDS: Final = (50,)
RECIPIENTS: Final = (2, 5)
"""Of ZeroDFL: 5 is the default, which in a mesh of five is everybody."""
LIMIT_S: Final = 3600.0
"""Virtual seconds, far more than any run here takes."""
DRAWN: Final[Mapping[str, Initial]] = {"common": "common", "own": "own"}
STARTS: Final = (*DRAWN, "a photo of a")
"""A random start, the same for all nodes or each node's own, or words."""
CONTEXT: Final = 4
HEADER: Final = (
    *("start", "lr", "rounds", "S", "zerodfl base", "new", "H"),
    *("local base", "new", "H"),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One point of the grid; recipients is None for local, which tells nobody."""

    start: str
    rounds: int
    lr: float
    recipients: int | None
    context: int = CONTEXT

    def tuning(self) -> TuningSettings:
        """Return what a node is told."""
        if self.start in DRAWN:
            start = DRAWN[self.start]
            return TuningSettings(start=start, lr=self.lr, context_length=self.context)
        return TuningSettings(init_words=self.start, lr=self.lr)

    def policy(self) -> Chosen:
        """Return the policy of the nodes."""
        if self.recipients is None:
            return chosen_of({"name": "local"})
        return chosen_of({"name": "zerodfl", "recipients": self.recipients})


@dataclass(frozen=True, slots=True)
class Nodes:
    """The data of all nodes for each seed, and the frozen model with its features."""

    frozen: backbone.Backbone
    features: Features
    data: Mapping[int, list[NodeData]]

    def run(self, trial: Trial) -> dict[str, float]:
        """Return mean accuracies over nodes and seeds, zero-shot ones included."""
        chosen, tuning = trial.policy(), trial.tuning()
        kind, config = chosen.kind, chosen.config
        found: list[Mapping[str, float]] = []
        for seed, splits in self.data.items():
            learners = {}
            for at, one in enumerate(splits):
                objective = registry.objective(kind.name)(self.frozen, tuning, config)
                learners[f"node-{at + 1}"] = TorchLearner(
                    self.frozen, objective, one, tuning, self.features
                )
            rounds = RoundSettings(mode="sync", max=trial.rounds, start=StartSettings(NODES - 1))
            world = World(seed)
            plan = Setup(
                policy=kind, config=config, rounds=rounds, seed=seed, start=tuning.start or "common"
            )
            world.populate(plan, learners)
            if not world.run(world.finished, LIMIT_S):
                raise RuntimeError(f"{trial} did not end within {LIMIT_S:g} virtual seconds")
            found += [world.kernel(name).view().metrics for name in learners]
        return {key: mean([one[key] for one in found]) for key in found[0]}


def merit(found: Mapping[str, float]) -> tuple[bool, float]:
    """Return what the rule compares: whether zero-shot is reached twice, then the harmonic mean."""
    reached = all(found[name] >= found[ZERO_SHOT + name] for name in ("base", "new"))
    return reached, harmonic(found["base"], found["new"])


@dataclass(frozen=True, slots=True)
class Grid:
    """What is tried. context: learned vectors of a drawn start (words have as many as there are).

    part, parts: a share of the grid, so that as many processes can work side by side.
    """

    starts: Sequence[str] = STARTS
    rates: Sequence[float] = RATES
    rounds: Sequence[int] = ROUNDS
    recipients: Sequence[int] = RECIPIENTS
    context: int = CONTEXT
    part: int = 1
    parts: int = 1

    def trials(self) -> Iterator[list[Trial]]:
        """Yield local, and ZeroDFL with each number of recipients, tuned alike."""
        points = list(itertools.product(self.starts, self.rounds, self.rates))
        for start, rounds, rate in points[self.part - 1 :: self.parts]:
            policies = (None, *self.recipients)
            yield [Trial(start, rounds, rate, one, self.context) for one in policies]


def unpack(archive: Path, folder: Path) -> None:
    """Write the images of the categories that do not ship, made as the shipped ones are."""
    with zipfile.ZipFile(archive) as source:
        members = by_category(source)
        for category in others(members):
            (folder / category).mkdir()
            for member in sorted(members[category])[:IMAGES_PER_CLASS]:
                path = folder / category / member.rsplit("/", 1)[-1]
                path.write_bytes(encode(source.read(member)))


def prepare(folder: Path) -> Nodes:
    """Load the model and everybody's splits."""
    frozen = backbone.load(ModelSettings())
    data: dict[int, list[NodeData]] = {}
    for seed in SEEDS:
        data[seed] = []
        for at in range(NODES):
            share = PartitionSettings(how="classes", index=at, count=NODES)
            settings = DataSettings(path=str(folder), halves=True, test=0.4, partition=share)
            data[seed].append(load(replace(settings, seed=seed)))
    return Nodes(frozen, Features(frozen), data)


def row(trial: Trial, zerodfl: Mapping[str, float], local: Mapping[str, float]) -> str:
    """Return one line of the table."""
    cells = [trial.start, f"{trial.lr:g}", str(trial.rounds)]
    cells.append(str(trial.recipients))
    for one in (zerodfl, local):
        base, new = one["base"], one["new"]
        cells += [f"{100 * value:.1f}" for value in (base, new, harmonic(base, new))]
    return markdown_table(HEADER, [cells])[-1]


def main() -> int:
    """Run the grid, or a part of it; print a table as it grows and the choice at its end."""
    parser = argparse.ArgumentParser(prog="python -m tools.search", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("archive", type=Path, help="Caltech101_128px_q88.zip")
    parser.add_argument("--starts", nargs="+", default=STARTS, help="common, own, or words")
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--rounds", nargs="+", type=int, default=ROUNDS)
    parser.add_argument("--recipients", nargs="+", type=int, default=RECIPIENTS)
    parser.add_argument("--context", type=int, default=CONTEXT, help="vectors of a drawn start")
    parser.add_argument("--part", default="1/1", help="2/3: the second of three shares of the grid")
    given = vars(parser.parse_args())
    archive, share = given.pop("archive"), given.pop("part")
    part, parts = (int(number) for number in share.split("/"))
    grid = Grid(**given, part=part, parts=parts)
    with tempfile.TemporaryDirectory(prefix="fednode-search-") as folder:
        unpack(archive, Path(folder))
        nodes = prepare(Path(folder))
        sys.stdout.write("\n".join([*markdown_table(HEADER, []), ""]))
        best: tuple[tuple[bool, float], Trial | None] = ((False, -1.0), None)
        zero_shot: Mapping[str, float] = {}
        for alone, *others in grid.trials():
            local = nodes.run(alone)
            zero_shot = {name: local[ZERO_SHOT + name] for name in ("base", "new")}
            for trial in others:
                found = nodes.run(trial)
                sys.stdout.write(row(trial, found, local) + "\n")
                sys.stdout.flush()
                best = max(best, (merit(found), trial), key=lambda one: one[0])
    base, new = (100 * one for one in zero_shot.values())
    both = harmonic(base, new)
    sys.stdout.write(f"\nzero-shot: base {base:.1f}, new {new:.1f}, H {both:.1f}\n")
    reached = "reaches zero-shot" if best[0][0] else "no setting reaches zero-shot on both"
    sys.stdout.write(f"best H {100 * best[0][1]:.1f} ({reached}): {best[1]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
