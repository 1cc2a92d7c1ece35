"""Say in a sentence why a class of another author is no method that fednode can run.

`class_fault` reads the class: its name, settings and hooks. `module_fault` classifies two images
with what the class tunes, and `hooks_fault` calls its hooks once, by value, as a node with one peer
would. All are asked before a node or an experiment starts.
"""

from __future__ import annotations

import dataclasses
import inspect
import random
import re
from difflib import get_close_matches
from typing import Any, Final

from fednode.core.policy import NodeContext, PolicyKind, PolicyMethod
from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.rounds.engine import Method
from fednode.core.rounds.gossip import PROMPTS, GossipConfig, GossipMethod, InboxMessage
from fednode.core.rounds.method import Contribution, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Job, Report, Tensors
from fednode.errors import ConfigError, FednodeError
from fednode.lazy import torch
from fednode.learn.prompt_module import Batch, JobInputs, PromptModule, to_params
from fednode.learn.settings import TuningSettings

NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
NEAR: Final = 0.75
"""How alike, from 0 to 1, a name and a hook's name are, if one is meant to be the other."""
OURS: Final = "fednode."
"""Begins the names of modules whose classes are not checked."""


def class_fault(offered: Any) -> str:
    """Return what is wrong with a class that is to be a method; "" if nothing is."""
    if not (isinstance(offered, type) and issubclass(offered, PolicyMethod)):
        return (
            f"{_named(offered)} is no method: derive it from Averaging, Method or GossipMethod of "
            "fednode.policy."
        )
    title, config = offered.__name__, getattr(offered, "config_type", None)
    if not isinstance(offered.name, str) or not NAME.fullmatch(offered.name):
        return (
            f"{title}.name is {offered.name!r}: set it to a word of small letters, digits, - and _."
        )
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        return (
            f"{title}.config_type is {_named(config)}: set it to a frozen dataclass, such as "
            "AveragingConfig of fednode.policy."
        )
    settings: type = AveragingConfig if issubclass(offered, Averaging) else object
    if issubclass(offered, GossipMethod) and offered.message is not GossipMethod.message:
        settings = GossipConfig
    if not issubclass(config, settings):
        return (
            f"{title}.config_type is {_named(config)}: derive it from {settings.__name__} of "
            "fednode.policy."
        )
    for key in offered.tuning.keys() - {field.name for field in dataclasses.fields(TuningSettings)}:
        return f"{title}.tuning has {key!r}, which is no setting of the section tuning."
    if not callable(offered.prompts):
        return f"{title}.prompts is {offered.prompts!r}: set it to a PromptModule, such as CoOp."
    missing = sorted(getattr(offered, "__abstractmethods__", ()))
    if missing:
        return f"{title} has no method {missing[0]}, which every method of its kind needs."
    prompts = offered.prompts
    module = isinstance(prompts, type) and issubclass(prompts, PromptModule)
    return _signature_fault(offered) or (_signature_fault(prompts) if module else "")


def _named(offered: Any) -> str:
    return getattr(offered, "__name__", "") or repr(offered)


def _signature_fault(own: Any) -> str:
    """Return what is wrong with the names and parameters of a class's own methods."""
    theirs = [kind for kind in own.__mro__ if not kind.__module__.startswith(OURS)]
    base = next(kind for kind in own.__mro__ if kind.__module__.startswith(OURS))
    hooks = [name for name, _ in inspect.getmembers(base, callable) if not name.startswith("_")]
    for kind in theirs:
        for name in vars(kind):
            given = inspect.getattr_static(own, name)
            hook = callable(getattr(given, "__func__", given)) and not isinstance(given, type)
            if name.startswith("_") or not hook:
                continue
            if name in hooks:
                wanted, found = _parameters(getattr(base, name)), getattr(own, name)
                try:
                    inspect.signature(found).bind(*wanted)
                except TypeError:
                    return (
                        f"{own.__name__}.{name} takes ({', '.join(_parameters(found))}); fednode "
                        f"calls it with ({', '.join(wanted)})."
                    )
            elif not hasattr(base, name) and (near := get_close_matches(name, hooks, 1, NEAR)):
                return (
                    f"{own.__name__} has a method {name}, which is no hook of {base.__name__}: "
                    f"write {near[0]} if you mean that; the name of a helper may begin with _."
                )
    return ""


def _parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def require_hooks(kind: PolicyKind, config: Any, module: PromptModule) -> None:
    """Raise ConfigError if a class of another author has a hook that cannot work.

    module: what the class's `prompts` made.
    """
    offered: Any = kind
    if str(getattr(offered, "__module__", OURS)).startswith(OURS):
        return
    fault = module_fault(module, getattr(offered, "stages", (PROMPTS,))[0])
    fault = fault or hooks_fault(offered, config, module.initial(1))
    if fault:
        raise ConfigError(f"policy {kind.name}: {fault}")


def module_fault(module: PromptModule, stage: str = PROMPTS) -> str:
    """Return what is wrong with a module's arrays, logits or losses; "" if nothing is."""
    title = type(module).__name__
    try:
        arrays: Any = module.initial(1)
        if not isinstance(arrays, Tensors):
            said = type(arrays).__name__
            return f"{title}.initial returns {said}: return Tensors of numpy arrays."
        return _trial_fault(module, arrays, stage)
    except FednodeError:  # a sentence on the model or the settings
        raise
    except Exception as fault:  # of the author's code, which may raise anything
        return f"{title} fails on two images: {_line(fault)}"


def _trial_fault(module: PromptModule, arrays: Tensors, stage: str) -> str:
    """Return what is wrong with the logits or losses of two images; "" if nothing is.

    A module that needs more of an image than its features is not tried.
    """
    if module.uses_image_encoder or module.per_image is not None or module.closed_form:
        return ""
    title, classes = type(module).__name__, ("cat", "dog", "car")
    params = to_params({**arrays, **module.private(1)}, module.clip.device)
    features = module.handwritten(classes)[:2]
    labels = torch.tensor([0, 2], device=features.device)
    norms = torch.ones_like(features[:, 0])
    batch = Batch(
        image_features=features, norms=norms, targets=labels, labels_host=(0, 2), index_host=(0, 1)
    )
    with torch.no_grad():
        logits = module.classifier(params, classes)(batch)
    if tuple(logits.shape) != (2, 3):
        return f"{title} gives logits {list(logits.shape)} for 2 images and 3 classes, not [2, 3]."
    for array in params.values():
        array.requires_grad_()
    job = Job(round=1, stage=stage, tensors=arrays, seed=1)
    inputs = JobInputs(job, params, {}, {}, classes)
    inputs.state = module.start(inputs)
    for loss in module.losses(batch, inputs):
        if loss.dim() or not loss.requires_grad:
            return (
                f"{title} gives a loss {list(loss.shape)}"
                f"{'' if loss.requires_grad else ' without a gradient'}; it must be one number "
                "that depends on the arrays."
            )
    return ""


def hooks_fault(offered: Any, config: Any, initial: Tensors) -> str:
    """Return what is wrong with what a method's hooks return; "" if nothing is."""
    rounds = RoundSettings(mode=None, max=2)
    context = NodeContext(
        name="a",
        peers=("b",),
        mesh="check",
        policy=offered.name,
        fingerprint="",
        seed=1,
        rounds=rounds,
        samples=1,
    )
    method, calls = offered(config, context), _Calls()
    try:
        if isinstance(method, GossipMethod):
            return calls.gossip(method, initial)
        return calls.rounds(method, initial)
    except Exception as fault:  # of the author's code, which may raise anything
        return f"{offered.__name__}.{calls.hook} fails: {_line(fault)}"


class _Calls:
    """Calls of a method's hooks. hook: the one that is being called."""

    hook = "__init__"

    def rounds(self, method: Method, initial: Tensors) -> str:
        """Return what is wrong in a round of two nodes that contribute the same."""
        title = type(method).__name__
        self.hook = "first"
        held = method.first(initial)
        if held.shared.shapes != initial.shapes:
            return (
                f"{title}.first returns shared arrays {_shown(held.shared)}; the prompts are "
                f"{_shown(initial)}."
            )
        now = Round(1, method.stages[0], held, held, members=frozenset("ab"))
        for stage in method.stages:
            now = dataclasses.replace(now, stage=stage)
            self.hook = "job"
            trained = method.job(now).tensors
            report = Report(
                tensors=trained, metrics={"loss": 1.0}, samples=1, changed=tuple(trained)
            )
            self.hook = "contribution"
            sent = method.contribution(now, report)
            if fault := method.fault(stage, held, sent.tensors):
                return f"{title}.contribution returns arrays that `shapes` does not allow: {fault}."
            now = dataclasses.replace(now, draft=sent.draft)
            self.hook = "received"
            contributions = [Contribution(name, sent.tensors, 1) for name in "ab"]
            given = tuple(method.received(now, contributions))
            self.hook = "merge"
            draft = method.merge(now, given)
            if draft.packed().shapes != held.packed().shapes:
                return (
                    f"{title}.merge returns a state of arrays {_shown(draft.packed())}; before it "
                    f"was {_shown(held.packed())}. A state has the same arrays in all rounds."
                )
            now = dataclasses.replace(now, draft=draft, heard={**now.heard, stage: given})
        return ""

    def gossip(self, method: GossipMethod, initial: Tensors) -> str:
        """Return what is wrong in a round of a node that got its own arrays from a peer."""
        title, peers = type(method).__name__, ("b", "c", "d")
        self.hook = "message"
        arrays = method.message(initial)
        self.hook = "recipients"
        drawn = method.recipients(2, peers, dict.fromkeys(peers, 0), random.Random(1))
        if len(drawn) > 2 or len({*drawn}) < len(drawn) or not {*drawn} <= {*peers}:
            return (
                f"{title}.recipients returns {drawn} for count 2 and peers {list(peers)}: return "
                "at most so many of these names, each once."
            )
        self.hook = "mix"
        inbox = [InboxMessage("b", 1, arrays)] if arrays else []
        tensors = initial
        for change in method.mix(initial, inbox, random.Random(1)):
            tensors = change.apply(tensors)
            if tensors.shapes != initial.shapes:
                return (
                    f"{title}.mix returns a change to arrays {_shown(tensors)}; the node's own are "
                    f"{_shown(initial)}."
                )
        return ""


def _line(fault: Exception) -> str:
    return " ".join(f"{type(fault).__name__}: {fault}".split())


def _shown(tensors: Tensors) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in tensors.shapes.items()) or "none"
