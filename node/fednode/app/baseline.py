"""Does the mesh help this node? `fednode eval` trains the control once, and compares.

The control is policy `local` with the node's images, seed and tuning, after as many rounds as the
node has run: what `fednode experiment` calls `local`. With policy gda the control is the same head
alone (`policy.head: gda`), which takes one round. The control's prompts lie in the state directory
and are used again while settings, images and rounds are the same. They are never sent; the control
releases nothing, so it costs no privacy.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fednode import registry, units
from fednode.app.state_dir import Tuned
from fednode.core import events as ev
from fednode.core.facts import fingerprint
from fednode.core.kernel import kernel_of
from fednode.core.policy import NodeContext
from fednode.core.settings import StartSettings
from fednode.core.types import EMPTY, Progress, Tensors
from fednode.data.base import ProgressFn, no_progress
from fednode.errors import FednodeError, ModelError, StateError
from fednode.evaluation.gain import (
    ALONE,
    MESH,
    ZERO_SHOT,
    is_possible,
    no_better_than_chance,
    sentences,
)
from fednode.settings.read import Chosen, Settings, start_of
from fednode.storage.disk import put

if TYPE_CHECKING:
    from fednode.evaluation.results import Evaluation
    from fednode.learn.torch_learner import TorchLearner

CONTROL: Final = "local"
PROMPT: Final = "prompt"
FILE: Final = "control.safetensors"
COMPARISON: Final = "eval.json"
"""The newest sentences and counts of `fednode eval` on the mesh, for status and page."""
TUNED: Final = "tuned"
"""The row of the node's own prompts in the tables of `fednode eval`."""
SETTINGS: Final = "settings"
IMAGES: Final = "images"
PROMISE: Final = "`fednode eval` says what the mesh brings"


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """The control of a node.

    prompts: empty if there is no control; `unknown` then says why. note: what its training took, if
    it was trained just now.
    """

    learner: TorchLearner
    prompts: Tensors = EMPTY
    unknown: str = ""
    note: str = ""


def control_of(
    tuned: Tuned, settings: Settings, learner: TorchLearner, progress: ProgressFn = no_progress
) -> Control | None:
    """Return the control of a state directory, trained if none is kept that fits.

    Return None if there is nothing to compare: the node exchanges nothing, or has merged nothing.

    Args:
        tuned: the content of the directory, with the settings of `fednode eval --set`.
        settings: those of the directory. If they differ, a control is used, but none is trained.
        learner: measures the node's prompts.
        progress: called with the steps that are done.
    """
    if settings.policy.name == CONTROL or tuned.merge_counts.never(by_wish=False):
        return None
    beside = _learner(settings, learner)
    if not tuned.rounds:
        return Control(beside, unknown="imported prompts do not tell their rounds")
    own = settings == tuned.settings
    parts = {SETTINGS: _settings_digest(settings, tuned.rounds, beside.backbone)}
    parts |= {IMAGES: _images_digest(beside)} if own else {}
    prompts, facts = read(tuned.folder)
    if prompts and parts.items() <= facts.items():
        return Control(beside, prompts)
    if not own:
        return Control(beside, unknown="`fednode eval` without --set trains it")
    from fednode.learn.export import write_arrays

    began = time.monotonic()
    try:
        trained = train(settings, tuned.rounds, beside, progress)
    except FednodeError as fault:
        return Control(beside, unknown=f"training it failed: {str(fault).rstrip('.')}")
    spent = units.duration(time.monotonic() - began)
    with contextlib.suppress(StateError):  # a full disk: the next call trains it again
        write_arrays(trained, parts, tuned.folder / FILE)
    if _head(settings) != PROMPT:
        return Control(beside, trained)
    before = "The control kept before is of other rounds, settings or images. " if prompts else ""
    rounds = f"{tuned.rounds} round{'s' if tuned.rounds > 1 else ''}"
    note = (
        f"{before}Trained the control, {rounds} on this node's images alone, in {spent}. It is "
        f"kept in {FILE} and used again while rounds, settings and images stay."
    )
    return Control(beside, trained, note=note)


def compare(
    tuned: Tuned, results: Mapping[str, Mapping[str, Evaluation]], unknown: str = ""
) -> tuple[list[str], list[str]]:
    """Return what a node's prompts gain over the control's and over the hand-written prompt.

    And hints: what to do if no accuracy is better than chance.

    results: by TUNED, ALONE (if there is a control; `unknown` says why not) and ZERO_SHOT, and by
    test set.
    """
    alone = tuned.settings.policy.name == CONTROL
    if tuned.merge_counts.never(alone):
        ran = tuned.merge_counts.rounds
        return [f"not known yet: in {ran} rounds this node merged nothing of a peer"], []
    rows = {ALONE if alone else MESH: results[TUNED]}
    rows |= {row: results[row] for row in (ALONE, ZERO_SHOT) if row in results}
    tests = {test: {row: rows[row][test] for row in rows} for test in results[TUNED]}
    texts = sentences(tests, unknown)
    if tuned.round and tests:
        texts = [f"round {tuned.round}: {text}" for text in texts]
    return texts, no_better_than_chance(tests)


def train(
    settings: Settings, number: int, control: TorchLearner, progress: ProgressFn = no_progress
) -> Tensors:
    """Return the prompts of policy `local` after `number` rounds: a mesh of this node alone.

    The schedule is that of the node: `rounds.max` stays as it is.
    """
    kind = registry.policy(CONTROL)
    config = kind.config_type(_head(settings))
    rounds = replace(settings.rounds, mode="sync", min_interval_s=0.0, start=StartSettings(peers=0))
    if _head(settings) != PROMPT:  # every round would give the same
        number, rounds = 1, replace(rounds, max=1)
    context = NodeContext(
        name=settings.name or "",
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
    events, ended, tuned = deque[ev.Event]([ev.Started()]), 0, EMPTY

    def on_step(now: Progress) -> None:
        progress("training alone, step", ended * now.steps + now.step, number * now.steps)

    while events and ended < number:
        for effect in kernel.step(0.0, events.popleft()):
            if isinstance(effect, ev.Tune):
                report = control.tune(effect.job, lambda: False, on_step)
                events.append(ev.Tuned(effect.job, report))
            elif isinstance(effect, ev.Adopt):
                tuned, _ = effect.snapshot.used(settings.guard.keep_best)
                ended = effect.snapshot.policy.round
                events.append(ev.Adopted(effect.snapshot))
    return tuned


def read(folder: Path) -> tuple[Tensors, dict[str, str]]:
    """Return the control's prompts in a state directory, and the digests of what they came from.

    Empty prompts if there are none, or if the file is damaged.
    """
    from fednode.learn.export import read_arrays  # loads torch

    try:
        return read_arrays(folder / FILE)
    except ModelError:
        return EMPTY, {}


def keep_comparison(folder: Path, sentences: Sequence[str], counts: Sequence[int] = ()) -> None:
    """Write what `fednode eval` says of this run, so that status and page show it.

    counts: of the gain over training alone (`Gain.counts`), if there is one.
    """
    kept = {"sentences": list(sentences), "counts": list(counts)}
    with contextlib.suppress(StateError):  # a full disk: status goes on to name the command
        put(folder / COMPARISON, json.dumps(kept), "state directory")


def comparison(settings: Settings, folder: Path) -> tuple[list[str], list[int]]:
    """Return what the mesh brings: nothing if the node exchanges nothing.

    The newest sentences of `fednode eval`, or that this command says it, and the counts.
    """
    if settings.policy.name == CONTROL or settings.tuning.kind != "torch":
        return [], []
    try:
        kept = json.loads((folder / COMPARISON).read_bytes())
        counts = [int(count) for count in kept["counts"]]
        sentences = [str(text) for text in kept["sentences"]]
        return sentences or [PROMISE], counts if is_possible(counts) else []
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return [PROMISE], []


def _head(settings: Settings) -> str:
    """Return `policy.head` of the control, which tunes no prompt if the node does not."""
    return "gda" if settings.policy.name == "gda" else PROMPT


def _learner(settings: Settings, learner: TorchLearner) -> TorchLearner:
    config = registry.policy(CONTROL).config_type(_head(settings))
    module = registry.prompt_module(CONTROL)
    return learner.with_module(module(learner.frozen, settings.tuning, config))


def _settings_digest(settings: Settings, number: int, backbone: str) -> str:
    """Return the digest of all but the images that decides the control's prompts."""
    head = _head(settings)
    rounds = (settings.rounds.max, number) if head == PROMPT else ()
    parts = (settings.name, settings.seed, backbone, head, rounds)
    decisive = (*parts, asdict(settings.guard), asdict(settings.tuning))
    return fingerprint({str(at): repr(part) for at, part in enumerate(decisive)})


def _images_digest(control: TorchLearner) -> str:
    """Return the digest of the images and classes that the control is trained on."""
    images = [
        [(str(image.path), image.label) for image in split.images]
        for split in (control.data.train, control.data.validation)
    ]
    return fingerprint({"classes": repr(control.classes), "images": repr(images)})
