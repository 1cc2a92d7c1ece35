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
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import CodeType
from typing import Any, Final

import numpy as np

from fednode.core.merge.numbers import roundtrip
from fednode.core.policy import NodeContext, PolicyKind, PolicyMethod
from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.rounds.gossip import PROMPTS, Change, GossipConfig, GossipMethod, InboxMessage
from fednode.core.rounds.method import Contribution, MethodHooks, MethodState, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Job, Report, Tensors
from fednode.errors import ConfigError, FednodeError
from fednode.lazy import torch
from fednode.learn.prompt_module import Batch, JobInputs, PromptModule, to_params
from fednode.learn.settings import TuningSettings

NAMES: Final = ("a", "b", "c", "d")
"""The nodes of a trial."""
NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
NEAR: Final = 0.75
"""How alike, from 0 to 1, two names of hooks or policies are, if one is meant to be the other."""
SENDING: Final = ("message", "recipients")
"""Hooks of gossip of which a class defines both or none."""
OURS: Final = "fednode."
"""Begins the names of modules whose classes are not checked."""
HOOKS: Final = {
    PromptModule: (
        "its prompts: put it into a class derived from CoOp, and name that class in `prompts`",
        ("initial", "text_features", "logits", "start", "loss", "after_step", "carry"),
    ),
    MethodHooks: (
        "a method of rounds: put it into the class derived from Averaging or Method",
        ("first", "job", "contribution", "merge"),
    ),
    GossipMethod: (
        "a method of gossip: put it into the class derived from GossipMethod",
        ("message", "recipients", "mix"),
    ),
}
"""By base class: how a sentence says where its hooks belong, and those that authors write most."""


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
    hints = map(str, inspect.get_annotations(config).values())
    if "__dataclass_fields__" not in vars(config) and any("ClassVar" not in hint for hint in hints):
        return f"{_named(config)} has settings and is no dataclass: write @dataclass(frozen=True)."
    for key in offered.tuning.keys() - {field.name for field in dataclasses.fields(TuningSettings)}:
        return f"{title}.tuning has {key!r}, which is no setting of the section tuning."
    if not callable(offered.prompts):
        return f"{title}.prompts is {offered.prompts!r}: set it to a PromptModule, such as CoOp."
    missing = sorted(getattr(offered, "__abstractmethods__", ()))
    if missing:
        return f"{title} has no method {missing[0]}, which every method of its kind needs."
    if issubclass(offered, GossipMethod):
        lacks = [hook for hook in SENDING if getattr(offered, hook) is getattr(GossipMethod, hook)]
        if len(lacks) == 1:
            return f"{title} has no {lacks[0]}, so nothing is sent: define {' and '.join(SENDING)}."
    prompts = offered.prompts
    module = isinstance(prompts, type) and issubclass(prompts, PromptModule)
    return _signature_fault(offered) or (_signature_fault(prompts) if module else "")


def _named(offered: Any) -> str:
    return getattr(offered, "__name__", "") or repr(offered)


def _signature_fault(own: Any) -> str:
    """Return what is wrong with the names and parameters of what a class itself defines."""
    theirs = [kind for kind in own.__mro__ if not kind.__module__.startswith(OURS)]
    base = next(kind for kind in own.__mro__ if kind.__module__.startswith(OURS))
    words = set[str]().union(*(_words(given) for kind in theirs for given in vars(kind).values()))
    defined = ((kind, name) for kind in theirs for name in vars(kind) if not name.startswith("_"))
    for author, name in defined:
        given, ours = (inspect.getattr_static(one, name, None) for one in (own, base))
        hook = callable(getattr(given, "__func__", given)) and not isinstance(given, type)
        unknown = name not in _names(base) and name not in words and issubclass(author, base)
        if unknown or (isinstance(ours, classmethod) and not isinstance(given, classmethod)):
            what = "a method" if hook else "an attribute"
            return f"{own.__name__} has {what} {name}, {_name_fault(base, name)}"
        if hook and callable(getattr(base, name, None)):
            wanted, found = _parameters(getattr(base, name)), getattr(own, name)
            try:
                inspect.signature(found).bind(*wanted)
            except TypeError:
                return (
                    f"{own.__name__}.{name} takes ({', '.join(_parameters(found))}); fednode "
                    f"calls it with ({', '.join(wanted)})."
                )
    return ""


def _name_fault(base: type, name: str) -> str:
    """Return what to say of a name that the base class has not and the class never reads."""
    hooks = ""
    for root, (place, most) in HOOKS.items():
        if issubclass(base, root):
            hooks = ", ".join(most)
        elif name in vars(root):
            return f"which is a hook of {place}."
    names = _names(base)
    near = get_close_matches(name, names, len(names), NEAR)
    meant = f"hooks are {hooks} (docs/methods.md)"
    if near:
        meant = f"write {max(near, key=name.startswith)} if you mean that"
    return (
        f"which neither fednode nor the class uses: {meant}; the name of a helper may begin with _."
    )


def _names(base: type) -> list[str]:
    """Return the public names that a base class has, or leaves to other classes."""
    left = (name for kind in base.__mro__ for name in inspect.get_annotations(kind))
    return sorted(name for name in {*dir(base), *left} if not name.startswith("_"))


def _words(given: Any) -> set[str]:
    """Return the names that a function, or a property's, reads, those inside it too."""
    given = getattr(given, "__func__", getattr(given, "fget", given))
    code = given if isinstance(given, CodeType) else getattr(given, "__code__", None)
    if code is None:
        return set()
    return {*code.co_names}.union(*map(_words, code.co_consts))


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
    losses: Iterable[Any] = module.losses(batch, inputs)
    for loss in losses:
        if not isinstance(loss, torch.Tensor):
            said = f"{title}.loss returns {type(loss).__name__}"
            return f"{said}: return the tensor, without float() or item()."
        slope = "" if loss.requires_grad else " without a gradient"
        if loss.dim() or slope:
            said = f"{title} gives a loss {list(loss.shape)}{slope}"
            return f"{said}; it must be one number that depends on the arrays."
    return ""


def hooks_fault(offered: Any, config: Any, initial: Tensors) -> str:
    """Return what is wrong with what a method's hooks return in a round; "" if nothing is."""
    try:
        made = {name: offered(config, frame_of(name, offered.name)) for name in NAMES}
        nodes = Nodes(made.__getitem__)
    except Exception as fault:  # of the author's code, which may raise anything
        return f"{offered.__name__}.__init__ fails: {_line(fault)}"
    try:
        nodes.begin(initial)
        nodes.run_round()
    except HookFault as fault:
        return f"{offered.__name__}.{fault}"
    except Exception as fault:  # of the author's code, which may raise anything
        return f"{offered.__name__}.{nodes.hook} fails: {_line(fault)}"
    return ""


class HookFault(Exception):
    """A sentence on a value that a hook must not return; it begins with the hook's name."""


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


def frame_of(name: str, policy: str, **changed: Any) -> NodeContext:
    """Return what a policy knows of one of NAMES."""
    peers = tuple(peer for peer in NAMES if peer != name)
    return frame(policy, name=name, peers=peers, rounds=RoundSettings(max=9), **changed)


class Nodes:
    """Nodes by value, whose hooks are called as the engines call them (core/rounds).

    No message is lost or late: that is the engines' part. method: returns a node's instance of the
    method, in each call the same one or, as after a restart, a new one. hook: the hook that is
    being called.
    """

    def __init__(self, method: Callable[[str], Any]) -> None:
        self.method, self.hook, self.number = method, "", 0
        self.gossip = isinstance(method(NAMES[0]), GossipMethod)
        self.states: dict[str, Any] = {}
        self.chosen = {name: {peer: 0 for peer in NAMES if peer != name} for name in NAMES}

    def begin(self, initial: Tensors) -> None:
        """Let all nodes start from the same arrays."""
        for name in NAMES:
            self.states[name] = initial if self.gossip else self._call(name, "first", initial)
            shared = initial if self.gossip else self.states[name].shared
            _require(
                shared.shapes == initial.shapes,
                f"first returns shared arrays {_shown(shared)}; the prompts are {_shown(initial)}.",
            )

    def run_round(self) -> None:
        """Let all nodes run a round. Raise HookFault if a hook returns what it must not."""
        self.number += 1
        if self.gossip:
            self._gossip()
        else:
            self.states = self.rounds(self.states)

    def rounds(self, states: Mapping[str, MethodState]) -> dict[str, MethodState]:
        """Return the states of nodes after a round that they run together. Raise as run_round."""
        stages = self.method(NAMES[0]).stages
        now = {
            name: Round(self.number, stages[0], held, held, members=frozenset(states))
            for name, held in states.items()
        }
        for stage in stages:
            sent = []
            for name in sorted(states):
                now[name] = dataclasses.replace(now[name], stage=stage)
                trained = _report(name, self._call(name, "job", now[name]).tensors)
                told = self._call(name, "contribution", now[name], trained)
                method = self.method(name)
                fault = method.fault(stage, states[name], told.tensors)
                _require(
                    not fault, f"contribution returns arrays that `shapes` does not allow: {fault}."
                )
                now[name] = dataclasses.replace(now[name], draft=told.draft)
                sent.append(Contribution(name, roundtrip(told.tensors, method.dtype(stage)), 8))
            for name in sorted(states):
                given = tuple(self._call(name, "received", now[name], sent))
                draft, held = self._call(name, "merge", now[name], given), states[name]
                _require_kind("merge", draft, MethodState, "now.draft with other arrays (replace)")
                _require_kind("merge", draft.shared, Tensors, "Tensors as `shared`")
                _require(
                    draft.packed().shapes == held.packed().shapes,
                    f"merge returns a state of arrays {_shown(draft.packed())}; before it was "
                    f"{_shown(held.packed())}. A state has the same arrays in all rounds.",
                )
                note = self._call(name, "note", now[name].draft, draft)
                _require_kind("note", note, str, "a sentence, or an empty one")
                heard = {**now[name].heard, stage: given}
                now[name] = dataclasses.replace(now[name], draft=draft, heard=heard)
        return {name: each.draft for name, each in now.items()}

    def _gossip(self) -> None:
        tuned = {name: _report(name, state).tensors for name, state in sorted(self.states.items())}
        inbox: dict[str, list[InboxMessage]] = {name: [] for name in NAMES}
        for name, state in tuned.items():
            message = self._call(name, "message", state)
            _require_kind("message", message, Tensors, "Tensors")
            for peer in self._recipients(name) if message else ():
                self.chosen[name][peer] += 1
                inbox[peer].append(InboxMessage(name, self.number, message))
        for name, own in tuned.items():
            self.states[name] = self._mixed(name, own, inbox[name]) if inbox[name] else own

    def _recipients(self, name: str) -> list[str]:
        peers, count, chosen = sorted(self.chosen[name]), 2, self.chosen[name]
        drawn, again = (
            self._call(name, "recipients", count, {*peers}, dict(chosen), random.Random(seed))
            for seed in [f"{name} {self.number}"] * 2
        )
        _require(
            len(drawn) == len({*drawn} & {*peers}) <= count,
            f"recipients returns {drawn} for count {count} and peers {peers}: return at most so "
            "many of these names, each once.",
        )
        _require(
            drawn == again,
            f"recipients returns {drawn}, then {again} for equal arguments: take random numbers "
            "from draw.",
        )
        return list(drawn)

    def _mixed(self, name: str, own: Tensors, inbox: list[InboxMessage]) -> Tensors:
        tensors, draw = own, random.Random(f"mix {name} {self.number}")
        changes = self._call(name, "mix", own, inbox, draw)
        _require_kind("mix", changes, Sequence, "a list of Change")
        senders = sorted(message.sender for message in inbox)
        for change in changes:
            _require_kind("mix", change, Change, "a list of Change")
            _require(
                change.sender in senders,
                f"mix returns a change of {change.sender!r}; the messages are of "
                f"{', '.join(senders)}.",
            )
            tensors = change.apply(tensors)
            _require_kind("mix", tensors, Tensors, "changes that return Tensors")
            _require(
                tensors.shapes == own.shapes,
                f"mix returns a change to arrays {_shown(tensors)}; the node's own are "
                f"{_shown(own)}.",
            )
        return tensors

    def _call(self, name: str, hook: str, *given: Any) -> Any:
        self.hook = hook
        return getattr(self.method(name), hook)(*given)


def _report(name: str, tensors: Tensors) -> Report:
    """Return what a learner would: each node moves its arrays by another number."""
    step = np.float32((1 + NAMES.index(name)) / 8)
    moved = Tensors({key: array + step for key, array in tensors.items()})
    return Report(tensors=moved, metrics={"loss": 1.0}, samples=8, changed=tuple(sorted(moved)))


def _require(holds: bool, sentence: str) -> None:
    """Raise HookFault with a sentence unless a condition holds."""
    if not holds:
        raise HookFault(sentence)


def _require_kind(hook: str, given: Any, kind: type, wanted: str) -> None:
    """Raise HookFault if what a hook returns is of another type."""
    found = type(given).__name__
    _require(isinstance(given, kind), f"{hook} returns {found}: return {wanted}.")


def _line(fault: Exception) -> str:
    return " ".join(f"{type(fault).__name__}: {fault}".split())


def _shown(tensors: Tensors) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in tensors.shapes.items()) or "none"
