"""No policy sends the name of a file, a folder, a patient or a class in its messages.

Method: three nodes with planted images (tests/unit/app/canary.py) and a tiny model, in virtual
time. All that a node sends is searched as bytes, and the texts of all its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.core import events as ev
from fednode.core.types import Dtype
from fednode.data.base import DataSettings, NodeData
from fednode.data.load import load
from fednode.lab.sim.world import Checker, World
from fednode.learn.features import Features
from fednode.wire import codec
from tests.simulation.test_one_truth import CASES, NODES, learners, plan
from tests.unit.app.canary import CLASS, found, plant
from tests.unit.policies.tiny import frozen


@dataclass
class Listener(Checker):
    """Keeps what all nodes say."""

    dtype: Dtype
    said: list[bytes] = field(default_factory=list)

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        for effect in effects:
            if isinstance(effect, ev.Send):
                message = effect.message
                self.said.append(codec.encode(message, message.dtype or self.dtype))
            elif isinstance(effect, ev.Answer):
                self.said.append(codec.encode_ack(effect.code, effect.detail))


@pytest.fixture(scope="module")
def model() -> Iterator[FrozenClip]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield frozen()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> NodeData:
    root, _ = plant(tmp_path_factory.mktemp("images"))
    return load(DataSettings(path=str(root), shots=1, test=0.1, validation=0.1))


def nothing(world: World) -> None:
    """Be no defect."""


def mesh(
    case: str, model: FrozenClip, data: NodeData, defect: Callable[[World], None] = nothing
) -> bytes:
    """Return all that the nodes of a mesh say, from its beginning to its end."""
    shared = plan(case)
    listener = Listener(getattr(shared.config, "wire_dtype", "float32"))
    world = World(1)
    world.checkers.append(listener)
    world.populate(shared, learners(case, model, [data] * len(NODES), Features(model)))
    defect(world)
    # Peers refuse facts that they do not expect, so a mesh with a defect need not come to an end.
    assert world.run(world.finished if defect is nothing else lambda: world.now > 1.0, 36000.0)
    return b"\n".join(listener.said)


@pytest.mark.parametrize("case", CASES)
def test_no_policy_sends_a_planted_name(case: str, model: FrozenClip, data: NodeData) -> None:
    assert len(data.train.classes) == 3
    content = mesh(case, model, data)
    assert len(content) > 1000
    # Messages of gda name classes; a node that does not tell them refuses it (app/plan.py).
    assert found(content, CLASS if case.startswith("gda") else b"") == set()


def test_a_class_name_that_is_sent_is_found(
    model: FrozenClip, data: NodeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: every message has the sender's classes among its facts."""

    def told(effect: ev.Effect) -> ev.Effect:
        if not isinstance(effect, ev.Send):
            return effect
        facts = {**effect.message.facts, "classes": ", ".join(data.train.classes)}
        return replace(effect, message=replace(effect.message, facts=facts))

    def defect(world: World) -> None:
        for name in NODES:
            kernel = world.kernel(name)
            step = kernel.step
            monkeypatch.setattr(
                kernel, "step", lambda now, event, step=step: [*map(told, step(now, event))]
            )

    assert found(mesh("promptfl", model, data, defect)) == {CLASS}
