"""What is wrong with a class that is to be a method, in one sentence each.

Method: classes of the guide's kind with one part changed; built-in methods pass as they are.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fednode import registry
from fednode.clip.model import FrozenClip
from fednode.conformance import class_fault, hooks_fault, module_fault, require_hooks
from fednode.errors import ConfigError
from fednode.policy import (
    Averaging,
    AveragingConfig,
    Change,
    CoOp,
    GossipConfig,
    GossipMethod,
    Method,
    MethodState,
    Sent,
    Tensors,
    TuningSettings,
)
from tests.unit.commands.run import Fednode
from tests.unit.policies.steps import config_of

START = Tensors({"context": np.ones((4, 2))})


class Good(Averaging):
    name = "good"
    config_type = AveragingConfig
    prompts = CoOp


class Gossiping(GossipMethod):
    name = "gossiping"
    config_type = GossipConfig
    prompts = CoOp

    def message(self, tensors: Tensors) -> Tensors:
        return tensors

    def recipients(self, count: int, peers: Any, chosen: Any, draw: Any) -> list[str]:
        return sorted(peers)[:count]


@dataclass(frozen=True)
class Loose:
    mu: float = 1.0


class Bare(AveragingConfig):
    mu: float = 1.0


class Plain:
    name = "plain"


def changed(base: Any, **parts: Any) -> Any:
    return type("Mine", (base,), {"__module__": __name__, **parts})


class Twisted(CoOp):
    def loss(self, inputs: Any) -> Any:  # type: ignore[override]
        return inputs


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        (Plain, "Plain is no method: derive it from Averaging, Method or GossipMethod"),
        (7, "7 is no method"),
        (changed(Good, name="My Method"), "Mine.name is 'My Method': set it to a word"),
        (changed(Averaging, prompts=CoOp), "Mine.name is ''"),
        (changed(Good, config_type=dict), "Mine.config_type is dict: set it to a frozen dataclass"),
        (changed(Good, config_type=Loose), "Mine.config_type is Loose: derive it from Averaging"),
        (changed(Gossiping, config_type=Loose), "Mine.config_type is Loose: derive it from Gossip"),
        (changed(Good, config_type=Bare), "Bare has settings and is no dataclass: write @datacla"),
        (changed(Good, tuning={"context_len": 4}),
         "Mine.tuning has 'context_len', which is no setting of the section tuning."),
        (changed(Good, prompts=None), "Mine.prompts is None: set it to a PromptModule"),
        (changed(Method, name="mine", config_type=AveragingConfig, prompts=CoOp),
         "Mine has no method merge"),
        (changed(Gossiping, recipients=GossipMethod.recipients),
         "Mine has no recipients, so nothing is sent: define message and recipients."),
        # Names and parameters.
        *((changed(Good, start=start), "Mine has a method start, which is a hook of its prompts")
          for start in (lambda self, inputs: None, lambda self, params, inputs: None)),
        (changed(Good, loss=lambda self, batch, inputs: None),
         "Mine has a method loss, which is a hook of its prompts: put it into a class derived "
         "from CoOp, and name that class in `prompts`."),
        (changed(Good, prompts=changed(CoOp, merge=lambda self, now, given: given)),
         "Mine has a method merge, which is a hook of a method of rounds: put it into the class"),
        (changed(Good, merge=lambda self, given: given),
         "Mine.merge takes (self, given); fednode calls it with (self, now, given)."),
        (changed(Good, prompts=Twisted),
         "Twisted.loss takes (self, inputs); fednode calls it with (self, batch, inputs)."),
        (changed(Good, merges=lambda self, now, given: given),
         "Mine has a method merges, which neither fednode nor the class uses: write merge if you"),
        (changed(Good, prompts=changed(CoOp, losss=lambda self, batch, inputs: None)),
         "Mine has a method losss, which neither fednode nor the class uses: write loss if you"),
        (changed(Good, drift=True),
         "Mine has an attribute drift, which neither fednode nor the class uses: write drifts"),
        (changed(Good, config_typ=Loose),
         "Mine has an attribute config_typ, which neither fednode nor the class uses: write"),
        (changed(Good, aggregate=lambda self, now, given: given),
         "Mine has a method aggregate, which neither fednode nor the class uses: hooks are first, "
         "job, contribution, merge (docs/methods.md); the name of a helper may begin with _."),
        (changed(Good, gain=2.0), "Mine has an attribute gain, which neither fednode nor the cla"),
    ],
)  # fmt: skip
def test_a_class_that_cannot_be_a_method_has_a_sentence(offered: Any, said: str) -> None:
    assert class_fault(offered).startswith(said)


def test_names_that_the_class_itself_uses_are_helpers() -> None:
    helped = {"gain": 2.0, "_merged": 1, "drift": property(lambda self: lambda: self.gain)}
    merged = {"merge": lambda self, now, given: self.drift() * super(Good, self).merge(now, given)}
    assert class_fault(changed(Good, **helped, **merged)) == ""
    assert class_fault(Gossiping) == ""


def test_the_built_in_methods_pass(model: FrozenClip) -> None:
    for name in registry.names():
        kind: Any = registry.policy(name)
        assert class_fault(kind) == ""
        made = registry.prompt_module(name)(
            model, TuningSettings(context_length=3), config_of(name)
        )
        assert module_fault(made) == ""


OTHERS = itertools.cycle("bc")


def other(tensors: Tensors) -> Tensors:
    return Tensors({"context": tensors["context"][:1]})


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        (changed(Good, first=lambda self, initial: MethodState(other(initial))),
         "Mine.first returns shared arrays context[1, 2]; the prompts are context[4, 2]."),
        (changed(Good, contribution=lambda self, now, report: Sent(other(START), now.draft)),
         "Mine.contribution returns arrays that `shapes` does not allow: context is [1, 2]"),
        (changed(Good, merge=lambda self, now, given: replace(now.draft, shared=other(START))),
         "Mine.merge returns a state of arrays shared/context[1, 2]; before it was"),
        (changed(Good, merge=lambda self, now, given: now.draft.shared["prompt"]),
         "Mine.merge fails: KeyError: 'prompt'"),
        (changed(Good, merge=lambda self, now, given: replace(now.draft, shared={})),
         "Mine.merge returns dict: return Tensors as `shared`."),
        (changed(Gossiping, recipients=lambda self, count, peers, chosen, draw: ["z"]),
         "Mine.recipients returns ['z'] for count 2 and peers ['b', 'c', 'd']"),
        (changed(Gossiping, recipients=lambda self, count, peers, chosen, draw: draw.sample(peers)),
         "Mine.recipients fails: TypeError"),
        (changed(Gossiping, recipients=lambda *_: [next(OTHERS)]),
         "Mine.recipients returns ['b'], then ['c'] for equal arguments: take random numbers from"),
        (changed(Gossiping, message=lambda self, tensors: {**tensors}),
         "Mine.message returns dict: return Tensors."),
        (changed(Gossiping, mix=lambda self, own, inbox, draw: own),
         "Mine.mix returns Tensors: return a list of Change."),
        (changed(Gossiping, mix=lambda self, own, inbox, draw: [Change("all", other)]),
         "Mine.mix returns a change of 'all'; the messages are of b, c, d."),
        (changed(Gossiping, mix=lambda self, own, inbox, draw: [Change(inbox[0].sender, other)]),
         "Mine.mix returns a change to arrays context[1, 2]; the node's own are context[4, 2]."),
    ],
)  # fmt: skip
def test_a_hook_that_returns_something_else_has_a_sentence(
    model: FrozenClip, offered: Any, said: str
) -> None:
    config = offered.config_type()
    assert hooks_fault(offered, config, START).startswith(said)
    kind = offered
    with pytest.raises(ConfigError, match=f"policy {offered.name}: Mine"):
        require_hooks(kind, config, CoOp(model, TuningSettings(context_length=4)))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, ""),
        ({"initial": lambda self, seed: {}}, "Mine.initial returns dict: return Tensors"),
        ({"text_features": lambda self, params, classes: self.handwritten(classes)[:2]},
         "Mine gives logits [2, 2] for 2 images and 3 classes, not [2, 3]."),
        ({"loss": lambda self, batch, inputs: self.handwritten(inputs.classes).sum()},
         "Mine gives a loss [] without a gradient; it must be one number"),
        ({"loss": lambda self, batch, inputs: 0.5},
         "Mine.loss returns float: return the tensor, without float() or item()."),
        ({"loss": lambda self, batch, inputs: inputs.params["context"]}, "Mine gives a loss [3, "),
        ({"loss": lambda self, batch, inputs: inputs.params["prompt"]},
         "Mine fails on two images: KeyError: 'prompt'"),
    ],
)  # fmt: skip
def test_what_is_tuned_is_tried_on_two_images(
    model: FrozenClip, parts: dict[str, Any], said: str
) -> None:
    found = module_fault(changed(CoOp, **parts)(model, TuningSettings(context_length=3)))
    assert found.startswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("merge", "said"),
    [
        (lambda self, given: given,
         "policy.name is 'mine': Mine.merge takes (self, given); fednode calls it"),
        (lambda self, now, given: replace(now.draft, shared=other(START)),
         "policy mine: Mine.merge returns a state of arrays shared/context[1, 2]"),
    ],
)  # fmt: skip
def test_check_says_it_in_one_sentence(
    fednode: Fednode, monkeypatch: pytest.MonkeyPatch, merge: Any, said: str
) -> None:
    entry = SimpleNamespace(name="mine", load=lambda: changed(Good, name="mine", merge=merge))
    monkeypatch.setattr(registry, "_entries", lambda _: (entry,))
    assert fednode("check", "--set", "policy={name: mine}", "--set", "data.shots=1") != 0
    assert said in fednode.out + fednode.err
    assert "Traceback" not in fednode.out + fednode.err


def test_hooks_that_work_pass() -> None:
    for offered in (Good, Gossiping):
        assert hooks_fault(offered, offered.config_type(), START) == ""

    strange = changed(Good, config_type=Loose)  # has no keys of the exchange
    assert hooks_fault(strange, Loose(), START).startswith("Mine.contribution fails: Attribute")
