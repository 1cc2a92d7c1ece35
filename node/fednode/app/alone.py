"""Does the mesh help this node? Train the control alone, and compare it with the mesh's prompts.

The control is policy `local` with the node's images, seed, tuning and number of rounds: what
`fednode experiment` calls `local`. A node trains it after its last round, on the thread that tunes,
so no round waits for it. With policy gda the control is the same head alone (`policy.head: gda`),
which takes one round; if gda runs without an end, the node compares whenever its classifier has
changed. The control's prompts and the newest sentences lie in the state directory, where a node
that starts again reads them. They are never sent; the control releases nothing, so it costs no
privacy.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

import safetensors
import safetensors.numpy

from fednode import registry
from fednode.core import company
from fednode.core import events as ev
from fednode.core.assemble import kernel_of
from fednode.core.facts import fingerprint
from fednode.core.policy import NodeContext
from fednode.core.settings import StartSettings
from fednode.core.types import EMPTY, NO_ROUNDS, MergeCounts, Tensors
from fednode.errors import FednodeError
from fednode.learn.comparison import (
    ALONE,
    MESH,
    ZERO_SHOT,
    Verdict,
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
SAID: Final = "said"
"""The key of the newest sentences, so that a node that starts again shows them at once."""
LATER: Final = "this node trains it after its last round"


@dataclass(slots=True)
class Comparing:
    """Compares a node's newest prompts with the control's; called on the thread that tunes."""

    settings: Settings
    name: str
    folder: Path
    learner: Learner
    _compared: str = field(default="", init=False)  # the digest of the prompts of the last verdict

    def __call__(self, cancelled: Callable[[], bool]) -> Verdict | None:
        """Train the control if its prompts are not kept yet; raise Cancelled if told to stop.

        Return None if the prompts are those of the last call.
        """
        snapshot = read_snapshot(self.folder)
        prompts, number = snapshot.used(self.settings.guard.keep_best)
        if prompts.digest == self._compared:
            return None
        verdict = compare(
            self.settings,
            self.learner,
            prompts,
            cancelled,
            lambda control: self._kept(control, cancelled),
            number,
            snapshot.merge_counts,
        )
        if verdict.round:
            self._compared = prompts.digest
            with contextlib.suppress(OSError):
                keep(self.folder, {SAID: json.dumps([*verdict.texts, *verdict.hints])})
        return verdict

    def due(self, record: ev.Record) -> bool:
        """Tell whether to compare after a record: the last round is over.

        If rounds have no end and the control takes one round, every round may bring other prompts.
        """
        if self._endless:
            return record.kind == "round.adopted"
        return ended(record)

    @property
    def _endless(self) -> bool:
        return not self.settings.rounds.max and _head(self.settings) != PROMPT

    @property
    def promise(self) -> list[str]:
        """Return the sentences of status until the comparison is there."""
        if not _tunes_prompts(self.learner) or self.settings.policy.name == CONTROL:
            return []
        unknown = _unknown(self.settings, self.learner)
        if unknown:
            return [f"this node does not train alone to compare: {unknown}"]
        said = facts_in(self.folder).get(SAID)
        if said:
            return [str(text) for text in json.loads(said)]
        if self._endless:
            return [
                "known after the first round that merges what a peer sent: then this node computes "
                "the same classifier from its own images alone, too"
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
        with contextlib.suppress(OSError):  # a full disk: it is trained again at the next start
            keep(self.folder, {KEY: key, CLASSES: json.dumps(trained.classes)}, trained)
        return trained


def compare(
    settings: Settings,
    learner: Learner,
    prompts: Tensors,
    cancelled: Callable[[], bool],
    control: Callable[[TorchLearner], Tensors],
    number: int = 0,
    merged: MergeCounts = NO_ROUNDS,
) -> Verdict:
    """Return what a node's prompts of round `number` gain over the control's.

    control: returns the control's prompts; empty ones mean that it is not trained yet. merged: how
    many rounds merged a peer's prompts. Before the first such round there is nothing to compare.
    """
    if not _tunes_prompts(learner):
        text = "whether the mesh helps is unknown: tuning.kind 'closed-form' knows no images"
        return Verdict([text])
    alone = settings.policy.name == CONTROL
    if company.never(merged, alone):
        return Verdict(
            [f"not known yet: in {merged.rounds} rounds this node merged nothing of a peer"]
        )
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
    texts = sentences(tests, unknown)
    first = next(iter(rows))
    return Verdict(
        [f"round {number}: {text}" for text in texts] if number and tests else texts,
        no_better_than_chance(tests),
        {name: float(test.rows[first].mean()) for name, test in tests.items()},
        number,
    )


def kept(
    settings: Settings, learner: Learner, folder: Path, train_now: bool = False
) -> tuple[TorchLearner, Tensors] | None:
    """Return the control's learner, and its prompts in a state directory; None without them.

    train_now: train a control that takes one round, if the directory holds none.
    """
    if not _tunes_prompts(learner) or settings.policy.name == CONTROL:
        return None
    if _unknown(settings, learner):
        return None
    control, (prompts, _) = control_of(settings, learner), read(folder)
    if train_now and not prompts and _head(settings) != PROMPT:
        prompts = train(settings, settings.name or "", control, lambda: False)
    return (control, prompts) if prompts else None


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


def keep(folder: Path, facts: Mapping[str, str], prompts: Tensors | None = None) -> None:
    """Write the control's prompts and facts; None: those that are there, with more facts."""
    if prompts is None:
        prompts, facts = read(folder)[0], {**facts_in(folder), **facts}
    Disk().replace(folder / FILE, safetensors.numpy.save(dict(prompts), dict(facts)))


def facts_in(folder: Path) -> dict[str, str]:
    """Return the facts beside the control's prompts; none if the file is missing or damaged."""
    try:
        with safetensors.safe_open(os.fspath(folder / FILE), "numpy") as file:
            return dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError):
        return {}


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
