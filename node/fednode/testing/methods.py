"""What every method promises, as tests to inherit: by value, without a mesh, an event or a timer.

`Nodes` calls the hooks of several nodes as the engines do (core/rounds/engine.py, gossip.py), but
without messages that are lost or late: those are the engines' part.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fednode.conformance import class_fault, hooks_fault
from fednode.core.merge.numbers import roundtrip
from fednode.core.policy import NodeContext, PolicyMethod
from fednode.core.rounds.gossip import GossipMethod, InboxMessage
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Report, Tensors

Shapes = Mapping[str, tuple[int, ...]]
CONTEXT: Shapes = {"context": (4, 2)}
"""CoOp's prompt: four vectors, each of two numbers."""
NAMES = ("a", "b", "c")


def frame(policy: str, **changed: Any) -> NodeContext:
    """Return what a policy knows of node "a" with peers "b" and "c", but for what is changed."""
    given = {
        "name": "a",
        "peers": ("b", "c"),
        "mesh": "m",
        "policy": policy,
        "fingerprint": "f",
        "seed": 1,
        "rounds": RoundSettings(),
        "samples": 8,
    }
    return NodeContext(**{**given, **changed})


@dataclass(frozen=True, slots=True)
class MethodCase:
    """A method with one configuration. shapes: of the arrays that are tuned and exchanged."""

    method: type[PolicyMethod]
    config: Any
    shapes: Shapes = dataclasses.field(default_factory=lambda: CONTEXT)

    @property
    def initial(self) -> Tensors:
        """The arrays that round 1 starts from."""
        arrays = {
            name: np.arange(float(np.prod(shape))).reshape(shape) / 8
            for name, shape in self.shapes.items()
        }
        return Tensors(arrays)

    def node(self, name: str) -> Any:
        """Return a node's instance of the class."""
        peers = tuple(peer for peer in NAMES if peer != name)
        rounds = RoundSettings(max=9)
        context = frame(self.method.name, name=name, peers=peers, rounds=rounds, domain="photo")
        return self.method(self.config, context)


class Nodes:
    """Three nodes by value. new_instances: make a new instance for each call, as a restart does."""

    def __init__(self, case: MethodCase, new_instances: bool = False) -> None:
        self._case, self._new, self.number = case, new_instances, 0
        self._methods = {name: case.node(name) for name in NAMES}
        self.gossip = isinstance(self._methods["a"], GossipMethod)
        self.states: dict[str, Any] = {
            name: case.initial if self.gossip else self.method(name).first(case.initial)
            for name in NAMES
        }
        self.chosen = {name: {peer: 0 for peer in NAMES if peer != name} for name in NAMES}

    def method(self, name: str) -> Any:
        """Return a node's instance."""
        return self._case.node(name) if self._new else self._methods[name]

    def run_round(self) -> None:
        """Let all nodes run a round."""
        self.number += 1
        if self.gossip:
            self._gossip()
        else:
            self.states = self.rounds(self.states)

    def rounds(self, states: Mapping[str, MethodState]) -> dict[str, MethodState]:
        """Return the states of nodes after a round that they run together."""
        stages = self.method("a").stages
        now = {
            name: Round(self.number, stages[0], held, held, members=frozenset(states))
            for name, held in states.items()
        }
        for stage in stages:
            sent = []
            for name in sorted(states):
                method, now[name] = self.method(name), replace(now[name], stage=stage)
                job = method.job(now[name])
                told = method.contribution(now[name], _report(name, job.tensors))
                assert not method.fault(stage, states[name], told.tensors)
                now[name] = replace(now[name], draft=told.draft)
                sent.append(Contribution(name, roundtrip(told.tensors, method.dtype(stage)), 8))
            for name in sorted(states):
                method = self.method(name)
                given = method.received(now[name], sent)
                draft = method.merge(now[name], given)
                assert isinstance(method.note(now[name].draft, draft), str)
                heard = {**now[name].heard, stage: tuple(given)}
                now[name] = replace(now[name], draft=draft, heard=heard)
        return {name: each.draft for name, each in now.items()}

    def _gossip(self) -> None:
        tuned = {name: _report(name, state).tensors for name, state in sorted(self.states.items())}
        inbox: dict[str, list[InboxMessage]] = {name: [] for name in NAMES}
        for name, state in tuned.items():
            method, chosen = self.method(name), self.chosen[name]
            message = method.message(state)
            draw = random.Random(f"{name} {self.number}")
            for peer in method.recipients(1, sorted(chosen), chosen, draw) if message else ():
                chosen[peer] += 1
                inbox[peer].append(InboxMessage(name, self.number, message))
        for name, state in tuned.items():
            draw = random.Random(f"mix {name} {self.number}")
            self.states[name] = mixed(self.method(name), state, inbox[name], draw)


def mixed(
    method: GossipMethod, own: Tensors, inbox: Sequence[InboxMessage], draw: random.Random
) -> Tensors:
    """Return a node's tensors after all changes that its inbox makes; an empty one makes none."""
    for change in method.mix(own, inbox, draw) if inbox else ():
        own = change.apply(own)
    return own


def _report(name: str, tensors: Tensors) -> Report:
    """Return what a learner would: each node moves its arrays by another number."""
    step = np.float32((1 + NAMES.index(name)) / 8)
    moved = Tensors({key: array + step for key, array in tensors.items()})
    return Report(tensors=moved, metrics={"loss": 1.0}, samples=8, changed=tuple(sorted(moved)))


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
        first, second = Nodes(case), Nodes(case)
        for number in range(3):
            for seed, nodes in ((number, first), (-1 - number, second)):
                random.seed(seed)
                np.random.seed(abs(seed))
                nodes.run_round()
            assert _digests(first) == _digests(second)

    def test_a_restarted_node_goes_on_alike(self, case: MethodCase) -> None:
        """A class keeps no state in `self`: what must live on is a part of the node's state."""
        kept, restarted = Nodes(case), Nodes(case, new_instances=True)
        for _ in range(3):
            kept.run_round()
            restarted.run_round()
        assert _digests(kept) == _digests(restarted)

    def test_hooks_leave_their_arguments_as_they_are(self, case: MethodCase) -> None:
        nodes = Nodes(case)
        nodes.run_round()
        before, states = _digests(nodes), dict(nodes.states)
        nodes.run_round()
        nodes.states = states
        assert _digests(nodes) == before

    def test_arrays_keep_their_shapes_and_stay_finite(self, case: MethodCase) -> None:
        nodes = Nodes(case)
        shapes = [_packed(nodes, name).shapes for name in NAMES]
        for _ in range(3):
            nodes.run_round()
            assert [_packed(nodes, name).shapes for name in NAMES] == shapes
            assert all(_packed(nodes, name).finite() for name in NAMES)

    def test_a_node_that_hears_nothing_goes_on(self, case: MethodCase) -> None:
        """Of mesh-wide rounds; a gossip method is not asked for a mix of nothing."""
        nodes = Nodes(case)
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
        nodes = Nodes(case)
        if nodes.gossip:
            return
        for _ in range(2):
            nodes.run_round()
            assert len({_packed(nodes, name).digest for name in NAMES}) == 1
        late = nodes.method("c").first(case.initial).taking(_packed(nodes, "a"))
        nodes.states["c"] = late
        nodes.run_round()
        assert len({_packed(nodes, name).digest for name in NAMES}) == 1

    @pytest.mark.parametrize("seed", range(5))
    def test_recipients_are_live_peers(self, case: MethodCase, seed: int) -> None:
        """Of gossip; equal draws give equal recipients."""
        nodes = Nodes(case)
        if not nodes.gossip:
            return
        method, peers = nodes.method("a"), [f"n{at}" for at in range(6)]
        for count in range(1, 8):
            chosen = {peer: at for at, peer in enumerate(peers)}
            drawn = method.recipients(count, peers, chosen, random.Random(seed))
            assert drawn == method.recipients(count, peers, chosen, random.Random(seed))
            assert {*drawn} <= {*peers}
            assert len({*drawn}) == len(drawn) <= count


def _packed(nodes: Nodes, name: str) -> Tensors:
    """Return the arrays of a node's state that the others may hold, too."""
    state: Any = nodes.states[name]
    packed: Tensors = state if nodes.gossip else state.packed()
    return packed
