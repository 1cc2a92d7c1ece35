"""What every method promises, as tests to inherit: by value, without a mesh, an event or a timer.

`Nodes` (conformance.py) calls the hooks of several nodes as the engines do.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fednode.conformance import NAMES, Nodes, class_fault, frame_of, hooks_fault
from fednode.core.policy import PolicyMethod
from fednode.core.rounds.method import Contribution, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Tensors

Shapes = Mapping[str, tuple[int, ...]]
CONTEXT: Shapes = {"context": (4, 2)}
"""CoOp's prompt: four vectors, each of two numbers."""


def arrays_of(shapes: Shapes) -> Tensors:
    """Return arrays of these shapes, in which all numbers differ."""
    return Tensors(
        {name: np.arange(float(np.prod(one))).reshape(one) / 8 for name, one in shapes.items()}
    )


@dataclass(frozen=True, slots=True)
class MethodCase:
    """A method with one configuration. shapes: of the arrays that are tuned and exchanged."""

    method: type[PolicyMethod]
    config: Any
    shapes: Shapes = dataclasses.field(default_factory=lambda: CONTEXT)

    @property
    def initial(self) -> Tensors:
        """The arrays that round 1 starts from."""
        return arrays_of(self.shapes)

    def node(self, name: str) -> Any:
        """Return a node's instance of the class."""
        return self.method(self.config, frame_of(name, self.method.name, domain="photo"))

    def nodes(self, new_instances: bool = False) -> Nodes:
        """Return four nodes. new_instances: make one for each call, as a restart does."""
        kept = {name: self.node(name) for name in NAMES}
        nodes = Nodes(self.node if new_instances else kept.__getitem__)
        nodes.begin(self.initial)
        return nodes


def _digests(nodes: Nodes) -> list[str]:
    if nodes.gossip:
        return [nodes.states[name].digest for name in NAMES]
    return [
        array.digest
        for name in NAMES
        for array in (nodes.states[name].packed(), nodes.states[name].arrays)
    ]


class MethodContract:
    """Inherit and give a fixture `case`, which returns a `MethodCase`."""

    def test_its_class_and_hooks_have_the_form_of_a_method(self, case: MethodCase) -> None:
        assert class_fault(case.method) == ""
        assert hooks_fault(case.method, case.config, case.initial) == ""

    def test_its_settings_are_a_frozen_dataclass_with_defaults(self, case: MethodCase) -> None:
        config = case.method.config_type
        assert isinstance(case.config, config)
        for field in dataclasses.fields(config):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(case.config, field.name, None)
        assert isinstance(config(), config)
        assert case.method.settings_fault(case.config, RoundSettings(max=9), "photo") == ""

    def test_equal_arguments_give_equal_results(self, case: MethodCase) -> None:
        """A hook draws from the generators it is given or makes by seed, never from a global."""
        first, second = case.nodes(), case.nodes()
        for number in range(3):
            for seed, nodes in ((number, first), (-1 - number, second)):
                random.seed(seed)
                np.random.seed(abs(seed))
                nodes.run_round()
            assert _digests(first) == _digests(second)

    def test_a_restarted_node_goes_on_alike(self, case: MethodCase) -> None:
        """A class keeps no state in `self`: what must live on is a part of the node's state."""
        kept, restarted = case.nodes(), case.nodes(new_instances=True)
        for _ in range(3):
            kept.run_round()
            restarted.run_round()
        assert _digests(kept) == _digests(restarted)

    def test_hooks_leave_their_arguments_as_they_are(self, case: MethodCase) -> None:
        nodes = case.nodes()
        nodes.run_round()
        before, states = _digests(nodes), dict(nodes.states)
        nodes.run_round()
        nodes.states = states
        assert _digests(nodes) == before

    def test_arrays_keep_their_shapes_and_stay_finite(self, case: MethodCase) -> None:
        nodes = case.nodes()
        shapes = [_packed(nodes, name).shapes for name in NAMES]
        for _ in range(3):
            nodes.run_round()
            assert [_packed(nodes, name).shapes for name in NAMES] == shapes
            assert all(_packed(nodes, name).finite() for name in NAMES)

    def test_a_node_that_hears_nothing_goes_on(self, case: MethodCase) -> None:
        """Of mesh-wide rounds; a gossip method is not asked for a mix of nothing."""
        nodes = case.nodes()
        if nodes.gossip:
            return
        method, nodes.number = nodes.method("a"), 1
        alone = nodes.rounds({"a": nodes.states["a"]})["a"]
        assert alone.packed().finite()
        now = Round(1, method.stages[0], nodes.states["a"], nodes.states["a"])
        empty = [Contribution(name, Tensors(), 8) for name in NAMES]
        left = method.merge(now, method.received(now, empty))
        assert left.packed().shapes == nodes.states["a"].packed().shapes

    def test_all_nodes_merge_to_equal_bits(self, case: MethodCase) -> None:
        """Of mesh-wide rounds; a node that takes over a peer's state goes on with the others."""
        nodes = case.nodes()
        if nodes.gossip:
            return
        for _ in range(2):
            nodes.run_round()
            assert len({_packed(nodes, name).digest for name in NAMES}) == 1
        late = nodes.method("c").first(case.initial).taking(_packed(nodes, "a"))
        nodes.states["c"] = late
        nodes.run_round()
        assert len({_packed(nodes, name).digest for name in NAMES}) == 1

    def test_recipients_are_live_peers(self, case: MethodCase) -> None:
        """Of gossip; equal draws give equal recipients."""
        nodes = case.nodes()
        if not nodes.gossip:
            return
        method, peers = nodes.method("a"), [f"n{at}" for at in range(6)]
        chosen = {peer: at for at, peer in enumerate(peers)}
        for count, seed in itertools.product(range(1, 8), range(5)):
            drawn = method.recipients(count, peers, chosen, random.Random(seed))
            assert drawn == method.recipients(count, peers, chosen, random.Random(seed))
            assert {*drawn} <= {*peers}
            assert len({*drawn}) == len(drawn) <= count


def _packed(nodes: Nodes, name: str) -> Tensors:
    """Return the arrays of a node's state that the others may hold, too."""
    state: Any = nodes.states[name]
    packed: Tensors = state if nodes.gossip else state.packed()
    return packed
