"""Does the mesh help this node? Train the control alone, and compare it with the mesh's prompts.

The control is policy `local` with the node's images, seed, tuning and number of rounds: what
`fednode experiment` calls `local`. A node trains it after its last round, on the thread that tunes,
so no round waits for it. With policy gda the control is the same head alone (`policy.head: gda`),
which takes one round; if gda runs without an end, the node compares after each evaluated round. The
control's prompts lie in the state directory and are never sent; it releases nothing, so it costs no
privacy. A node that starts again reads them there.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

import safetensors
import safetensors.numpy

from fednode import registry
from fednode.core import events as ev
from fednode.core.assemble import kernel_of
from fednode.core.facts import fingerprint
from fednode.core.policy import NodeContext
from fednode.core.settings import StartSettings
from fednode.core.types import EMPTY, Tensors
from fednode.errors import FednodeError
from fednode.learn.comparison import (
    ALONE,
    MESH,
    ZERO_SHOT,
    no_better_than_chance,
    sentences,
)
from fednode.learn.learner import Learner
from fednode.runtime.changes import ended
from fednode.settings.chosen import Chosen
from fednode.settings.read import Settings, start_of
from fednode.storage.disk import Disk
from fednode.storage.store import read_snapshot

if TYPE_CHECKING:
    from fednode.learn.torch_learner import TorchLearner

CONTROL: Final = "local"
HEADS: Final = {"gda": "gda"}
"""The head of the control, for policies whose control tunes no prompt."""
CLASSES: Final = "classes"
FILE: Final = "alone.safetensors"
KEY: Final = "key"
PROMPT: Final = "prompt"
LATER: Final = "this node trains it after its last round"
Comparison = tuple[list[str], list[str]]
"""Sentences on what the node gains, and one if no accuracy is better than chance."""


@dataclass(frozen=True, slots=True)
class Comparing:
    """Compares a node's newest prompts with the control's; called on the thread that tunes."""

    settings: Settings
    name: str
    folder: Path
    learner: Learner

    def __call__(self, cancelled: Callable[[], bool]) -> list[str]:
        """Train the control if its prompts are not kept yet; raise Cancelled if told to stop."""
        prompts, _ = read_snapshot(self.folder).used(self.settings.guard.keep_best)
        gains, hints = compare(
            self.settings,
            self.learner,
            prompts,
            cancelled,
            lambda control: self._kept(control, cancelled),
        )
        return [*gains, *hints]

    def due(self, record: ev.Record) -> bool:
        """Tell whether to compare after a record: the last round is over.

        If rounds have no end and the control takes one round, an evaluated round is enough.
        """
        if self._endless:
            return record.kind == "round.adopted" and "own" in record.fields
        return ended(record)

    @property
    def _endless(self) -> bool:
        return not self.settings.rounds.max and _head(self.settings) != PROMPT

    @property
    def promise(self) -> list[str]:
        """What status says until the comparison is there: when it comes, or why it never comes."""
        if not _tunes_prompts(self.learner) or self.settings.policy.name == CONTROL:
            return []
        unknown = _unknown(self.settings, self.learner)
        if unknown:
            return [f"this node does not train alone to compare: {unknown}"]
        if self._endless:
            return [
                "known after the first round: then this node computes the same classifier from its "
                "own images alone, too"
            ]
        return [
            f"known after round {self.settings.rounds.max}: then this node trains alone, too, with "
            "the same images, and compares"
        ]

    def _kept(self, control: TorchLearner, cancelled: Callable[[], bool]) -> Tensors:
        key = _key(self.settings, self.name, control)
        held, of = read(self.folder)
        if held and of == key:
            return held
        trained = train(self.settings, self.name, control, cancelled)
        named = {KEY: key, CLASSES: json.dumps(trained.classes)}
        content = safetensors.numpy.save(dict(trained), named)
        with contextlib.suppress(OSError):  # a full disk: it is trained again at the next start
            Disk().replace(self.folder / FILE, content)
        return trained


def compare(
    settings: Settings,
    learner: Learner,
    prompts: Tensors,
    cancelled: Callable[[], bool],
    control: Callable[[TorchLearner], Tensors],
) -> Comparison:
    """Return what a node's prompts gain over the control's, which `control` returns.

    Empty prompts of the control mean that it is not trained yet.
    """
    if not _tunes_prompts(learner):
        return ["whether the mesh helps is unknown: tuning.kind 'closed-form' knows no images"], []
    alone = settings.policy.name == CONTROL
    rows = {ALONE if alone else MESH: (learner, prompts)}
    unknown = "" if alone else _unknown(settings, learner)
    if not alone and not unknown:
        beside = control_of(settings, learner)
        try:
            trained = control(beside)
            unknown = "" if trained else LATER
        except FednodeError as fault:
            trained, unknown = EMPTY, f"training it failed: {str(fault).rstrip('.')}"
        if trained:
            rows[ALONE] = (beside, trained)
    rows[ZERO_SHOT] = (learner, EMPTY)
    tests = learner.tested(rows, cancelled)
    return sentences(tests, unknown), no_better_than_chance(tests)


def kept(settings: Settings, learner: Learner, folder: Path) -> tuple[TorchLearner, Tensors] | None:
    """Return the control's learner, and its prompts in a state directory; None without them."""
    if not _tunes_prompts(learner) or settings.policy.name == CONTROL:
        return None
    prompts = EMPTY if _unknown(settings, learner) else read(folder)[0]
    return (control_of(settings, learner), prompts) if prompts else None


def _tunes_prompts(learner: Learner) -> TypeGuard[TorchLearner]:
    """Tell whether a learner holds a model, without loading torch where it holds none."""
    loaded = sys.modules.get("fednode.learn.torch_learner")
    return loaded is not None and isinstance(learner, loaded.TorchLearner)


def _unknown(settings: Settings, learner: TorchLearner) -> str:
    """Return why the control is not trained; "" if it is."""
    if not settings.compare_alone:
        return "compare_alone is false"
    if learner.looks:
        return (
            f"policy {settings.policy.name} tunes visual prompts, so nothing of the images is kept "
            "that would make a second training cheap"
        )
    ends = settings.rounds.max or _head(settings) != PROMPT
    return "" if ends else "rounds.max is 0, so there is no last round"


def _head(settings: Settings) -> str:
    """Return `policy.head` of the control."""
    return HEADS.get(settings.policy.name, PROMPT)


def control_of(settings: Settings, learner: TorchLearner) -> TorchLearner:
    """Return the learner of the control."""
    kind = registry.policy(CONTROL)
    objective = registry.objective(CONTROL)
    config = kind.config_type(_head(settings))
    return learner.beside(objective(learner.frozen, settings.tuning, config))


def train(
    settings: Settings, name: str, control: Learner, cancelled: Callable[[], bool]
) -> Tensors:
    """Return the prompts of policy `local` after rounds.max rounds: a mesh of this node alone."""
    kind = registry.policy(CONTROL)
    config = kind.config_type(_head(settings))
    rounds = replace(settings.rounds, mode="sync", min_interval_s=0.0, start=StartSettings(peers=0))
    if _head(settings) != PROMPT:  # every round would give the same
        rounds = replace(rounds, max=1)
    context = NodeContext(
        name=name,
        peers=(),
        mesh="",
        seed=settings.seed,
        rounds=rounds,
        samples=control.samples,
        domain=settings.data.domain,
        guard=settings.guard,
        start=start_of(replace(settings, policy=Chosen(kind, config, {"name": CONTROL}))),
    )
    kernel = kernel_of(context, kind, config, control.initial, {}, None)
    events, tuned = deque[ev.Event]([ev.Started()]), EMPTY
    while events:
        for effect in kernel.step(0.0, events.popleft()):
            if isinstance(effect, ev.Tune):
                report = control.tune(effect.job, cancelled, lambda _: None)
                events.append(ev.Tuned(effect.job, report))
            elif isinstance(effect, ev.Adopt):
                tuned, _ = effect.snapshot.used(settings.guard.keep_best)
                events.append(ev.Adopted(effect.snapshot))
    return tuned


def read(folder: Path) -> tuple[Tensors, str]:
    """Return the control's prompts in a state directory and the key of what they came from.

    Empty prompts if there are none, or if the file is damaged.
    """
    path = folder / FILE
    try:
        with safetensors.safe_open(os.fspath(path), "numpy") as file:
            facts = file.metadata() or {}
            classes = [str(one) for one in json.loads(facts.get(CLASSES, "[]"))]
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return Tensors(found, classes), facts.get(KEY, "")
    except (OSError, ValueError, TypeError, safetensors.SafetensorError):
        return EMPTY, ""


def _key(settings: Settings, name: str, control: TorchLearner) -> str:
    """Return the digest of all that decides the control's prompts."""
    parts = {"name": name, "seed": settings.seed, "backbone": control.backbone}
    parts |= {"rounds": settings.rounds.max, "guard": asdict(settings.guard)}
    parts |= {} if _head(settings) == PROMPT else {"head": _head(settings)}
    tuning = asdict(settings.tuning)
    images = [
        [(str(image.path), image.label) for image in split.images]
        for split in (control.data.train, control.data.validation)
    ]
    parts |= {"tuning": tuning, "images": images, "classes": control.classes}
    return fingerprint({key: repr(part) for key, part in parts.items()})
