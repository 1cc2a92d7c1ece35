"""An attack that takes its time: two liars of nine under Krum."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.core.settings import MergeSettings, RoundSettings, StartSettings
from fednode.core.types import EMPTY, Job, Message, Progress, Report, Tensors
from fednode.data.base import DataSettings
from fednode.data.load import load
from fednode.lab.sim.host import Liar
from fednode.lab.simulate.byzantine import COLLUDE, KINDS, Hostile, Plot
from fednode.learn.cache import cache_of
from fednode.learn.coop import CoOp
from fednode.learn.features import Features
from fednode.learn.learner import Learner
from fednode.learn.settings import CacheSettings, TuningSettings
from fednode.learn.torch_learner import TorchLearner
from tests.e2e.attacks.live import LIMIT_S, Scene, live, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SEVEN = tuple(f"honest-{number}" for number in range(1, 8))
LIARS = ("liar-1", "liar-2")
ROUNDS = RoundSettings("sync", 15, deadline_s=30.0, start=StartSettings(6, LIMIT_S))
KRUM = {"merge": MergeSettings("krum", liars=len(LIARS))}
TUNING = TuningSettings(
    batch_size=100, lr=0.1, init_words=None, context_length=4, schedule="constant"
)
POINTS = 0.02


class InTurn(TorchLearner):
    """A learner that trains while no other one does: all share a model in this process."""

    lock = threading.Lock()

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        with self.lock:
            return super().tune(job, cancelled, progress)


def colluding(name: str, plot: Plot) -> Liar:
    """Claim a far round, give a false state, claim it, and tell false prompts in each round."""
    collude = KINDS[COLLUDE](Hostile((), random.Random(name), EMPTY, plot))
    numbers = np.random.default_rng(len(name) + ord(name[-1]))

    def say(to: str, message: Message) -> list[tuple[str, Message]]:
        if message.phase != "prompts":
            return collude.say(to, message)
        false = {
            key: 7.0 + numbers.normal(0, 0.01, one.shape) for key, one in message.tensors.items()
        }
        return [(to, replace(message, tensors=Tensors(false))), *collude.say(to, message)]

    return Liar(say)


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


async def run(folder: Path, liars: tuple[str, ...]) -> tuple[list[int], float]:
    """Run seven honest nodes to the end; return their last rounds and their mean accuracy."""
    frozen = clip.load(ModelSettings(device="cpu"))
    features = Features(frozen, cache_of(CacheSettings()))

    def learner(name: str) -> Learner:
        data = load(DataSettings(shots=4, test=0.6, seed=int(name[-1])))
        return InTurn(frozen, CoOp(frozen, TUNING), data, TUNING, features)

    plot = Plot(ahead=10**6)
    names = (*SEVEN, *liars)
    hostile = {name: colluding(name, plot) for name in liars}
    scene = Scene(names, SEVEN, ROUNDS, KRUM, learner, hostile)
    async with live(folder, names, scene) as mesh:
        honest = [mesh.nodes[name] for name in SEVEN]

        def finished() -> bool:
            return all(one.kernel.view().life == "finished" for one in honest)

        await until(finished, 4 * LIMIT_S)
        rounds = [one.round for one in honest]
        held = [one.kernel.policy.state().tensors for one in honest]
        scores = [
            one.learner.evaluate(tensors, lambda: False)["own"]
            for one, tensors in zip(honest, held, strict=True)
        ]
    return rounds, float(np.mean(scores))


async def test_two_that_collude_change_neither_the_rounds_nor_what_is_learned(
    tmp_path: Path, one_thread: None
) -> None:
    alone, without = await run(tmp_path / "without", ())
    among, with_liars = await run(tmp_path / "with", LIARS)
    print(
        f"\nmulti-Krum for two, {ROUNDS.max} rounds: last rounds {alone} without liars and {among} "
        f"with two; mean accuracy {100 * without:.1f} % and {100 * with_liars:.1f} %"
    )
    assert alone == among == [ROUNDS.max] * len(SEVEN)
    assert abs(without - with_liars) <= POINTS
