"""Run all cells of an experiment: on one machine or many, each outcome in a file of its own.

A cell is (method, seed, domain left out). Its file names what it was made from, so that a run that
was stopped goes on where it was, and a changed setting makes its cells anew and no others. Who runs
a cell holds a claim on it (node/fednode/lab/experiment/claims.py), so commands on several machines
may share a folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from fednode import __version__
from fednode.clip import backbone
from fednode.clip.settings import ModelSettings
from fednode.core import foreign
from fednode.core.waiting import BOUNDED_S
from fednode.errors import FednodeError, StateError
from fednode.lab.experiment import cell, claims, scene
from fednode.lab.experiment.cells import ELSEWHERE, FOLDER, Cell, Done, Job, Outcome
from fednode.lab.experiment.executors import Pool
from fednode.lab.experiment.files import learns, settings_of
from fednode.lab.experiment.judge import Parts
from fednode.lab.experiment.settings import Experiment, MethodSettings
from fednode.learn.build import weights_of
from fednode.learn.cache import cache_of
from fednode.learn.features import Features
from fednode.learn.settings import CacheSettings
from fednode.settings.read import tree_of
from fednode.storage.files import put

POLL_S: Final = 5.0
"""Time between two looks at cells that other workers run."""
TRIES: Final = 3
"""Most workers of a cluster that one cell may lose."""
REASON_MAX: Final = 400
"""Most characters of what a cluster says about a worker that it lost; the last ones."""
SINCE: Final[Mapping[tuple[str, str], Any]] = {
    ("rounds", "redo"): False,
    ("rounds", "lateness"): 1.0,
    ("tuning", "gpu_share"): None,
}
"""Settings that came after the first files, with the defaults that give files their old names."""
PARTS: Final = ("model", "policy", "tuning", "privacy", "rounds", "guard", "limits", "topology")
"""The sections of a node's settings that an outcome depends on."""


def cells(experiment: Experiment) -> list[Cell]:
    """Return all cells, seeds first, so that a table has something of every method early."""
    return [
        Cell(method, seed, target, _key(experiment, method, seed, target))
        for seed in experiment.seeds
        for target in scene.targets(experiment)
        for method in experiment.methods
    ]


def _key(experiment: Experiment, method: MethodSettings, seed: int, target: str) -> str:
    tree = asdict(experiment)
    for name in ("title", "methods", "seeds", "smoke", "vary", "cache", "against"):
        del tree[name]
    del tree["protocol"]["targets"]
    for name in ("templates", "domains"):  # files of before these settings keep their names
        if not tree["data"][name]:
            del tree["data"][name]
    own: dict[str, Any] = {"policy": method.policy, "tuning": method.tuning, "seed": seed}
    if learns(method):  # a default that changes makes another cell
        whole = tree_of(settings_of(experiment, method, experiment.title, ("x",)))
        if whole["rounds"]["mode"] != "async":  # files of before this setting keep their names
            del whole["rounds"]["lead"]
        if whole["rounds"]["start"]["timeout_s"] is None:  # files of before name this time
            whole["rounds"]["start"]["timeout_s"] = BOUNDED_S
        if whole["tuning"]["kind"] == "torch":  # likewise
            del whole["tuning"]["step_s"]
        words = whole["tuning"]["template"]  # files of before name the sentence
        whole["tuning"]["template"] = ModelSettings(whole["model"]["name"]).worded(words)
        for (part, name), usual in SINCE.items():
            if whole[part][name] == usual:
                del whole[part][name]
        if whole["policy"]["name"] != "gda":
            del whole["privacy"]["least_images"]  # no other policy reads it
        own["settings"] = {name: whole[name] for name in PARTS}
    if method.liars:
        own.update(liars=method.liars, lie=method.lie)
    if method.mean_at_end:
        own.update(mean_at_end=True)
    own.update(target=target, rounds=method.rounds, version=__version__, experiment=tree)
    text = json.dumps(own, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run_all(
    jobs: Sequence[Job],
    pool: Pool,
    progress: Callable[[Done], None],
    say: Callable[[str], None],
    known: Mapping[str, Outcome] | None = None,
) -> list[Done]:
    """Run the cells that have no file yet, unless another worker does; return all cells in order.

    progress: called for each cell as it ends. say: gets a sentence when other workers run all cells
    that are left, and this call waits for them. known: outcomes by the cell's key, which are not
    run again either.
    """
    todo, ended = [], dict[Path, Done]()
    for job in jobs:
        held = _read(job.path) or (known or {}).get(job.cell.key)
        if held is None:
            todo.append(job)
        else:
            ended[job.path] = Done(job.cell, held, fresh=False)
            progress(ended[job.path])
    for folder in {job.folder for job in jobs}:  # tables are written even if no cell is missing
        _make(folder / FOLDER)
    for job, done in _Queue(todo, pool, say).run():
        ended[job.path] = done
        progress(done)
    return [ended[job.path] for job in jobs]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A worker's try at a cell. With neither outcome nor fault, another worker holds the cell."""

    outcome: Outcome | None = None
    fault: str = ""
    fresh: bool = False


class _Queue:
    """Cells on their way through an executor."""

    def __init__(self, todo: Sequence[Job], pool: Pool, say: Callable[[str], None]) -> None:
        self._pool, self._say = pool, say
        self._waiting = list(todo)
        self._running: dict[Future[Attempt], Job] = {}
        self._lost: Counter[Path] = Counter()
        self._said = ""

    def run(self) -> Iterator[tuple[Job, Done]]:
        """Yield each cell as it ends."""
        while self._waiting or self._running:
            yield from self._submit()
            if self._running:
                ended, _ = wait(self._running, POLL_S if self._waiting else None, FIRST_COMPLETED)
                for future in ended:
                    job = self._running.pop(future)
                    done = self._ended(job, future)
                    if done is None:
                        self._waiting.append(job)
                    else:
                        yield job, done
            elif self._waiting:
                time.sleep(POLL_S)

    def _submit(self) -> Iterator[tuple[Job, Done]]:
        """Start cells that nobody runs; yield the cells that others have finished."""
        left, holders = [], []
        for job in self._waiting:
            if len(self._running) >= self._pool.ahead:
                left.append(job)
            elif (outcome := _read(job.path)) is not None:
                yield job, Done(job.cell, outcome, fresh=False, other=True)
            elif holder := claims.holder(job.path):
                left.append(job)
                holders.append(f"{holder} runs {job.cell.title}")
            else:
                future = self._pool.submit(attempt, job)
                self._running[future] = job
        self._waiting = left
        said = "; ".join(holders)
        if said and not self._running and said != self._said:
            self._said = said
            self._say(f"Waiting for other workers: {said}.")

    def _ended(self, job: Job, future: Future[Attempt]) -> Done | None:
        """Return the cell with what came out; None if it must wait for another worker."""
        try:
            tried = future.result()
        except BrokenProcessPool:
            text = (
                "a process of the experiment was ended, for lack of memory, say; use fewer "
                "--workers"
            )
            return Done(job.cell, {}, text)
        except Exception as fault:
            if self._pool.local:
                raise
            self._lost[job.path] += 1
            if self._lost[job.path] < TRIES:
                return None
            said = " ".join(str(fault).split())[-REASON_MAX:]
            return Done(job.cell, {}, f"{TRIES} workers were lost with this cell, at last: {said}")
        if tried.fault:
            return Done(job.cell, {}, tried.fault)
        if tried.outcome is None:
            return None
        return Done(job.cell, tried.outcome, fresh=tried.fresh, other=not tried.fresh)


def attempt(job: Job) -> Attempt:
    """Run a cell and write its file, unless another worker has done so or is about to.

    Raise StateError if the folder cannot be written. The trace of a defect goes into a file.
    """
    with _claimed(job.path) as mine:
        if not mine:
            return Attempt()
        held = _read(job.path)
        if held is not None:
            return Attempt(held)
        try:
            outcome = _outcome(job.experiment, job.cell)
        except FednodeError as fault:
            return Attempt(fault=str(fault))
        except Exception as fault:
            return Attempt(fault=_defect(job, fault))
        put(job.path, json.dumps(outcome, indent=1), ELSEWHERE, for_all=True)
        return Attempt(outcome, fresh=True)


def _defect(job: Job, fault: Exception) -> str:
    """Write the trace of an unforeseen fault beside the cell's file; return a sentence on it."""
    trace = job.path.with_suffix(".fault.txt")
    put(trace, "".join(traceback.format_exception(fault)), ELSEWHERE, for_all=True)
    said = foreign.line(str(fault), most=REASON_MAX)
    return f"{type(fault).__name__}: {said} (a defect; its trace is in {trace})"


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    claim = claims.take(path)
    try:
        yield claim is not None
    finally:
        if claim is not None:
            claim.release()


@lru_cache(maxsize=1)
def _parts(model: ModelSettings, settings: CacheSettings) -> Parts:
    frozen, cache = backbone.load(model, weights_of(settings)), cache_of(settings)
    return Parts(frozen, Features(frozen, cache), cache)


def _outcome(experiment: Experiment, wanted: Cell) -> Outcome:
    parts = _parts(experiment.model, experiment.cache)
    made = scene.scene(experiment, wanted.seed, wanted.target, parts.cache)
    return {
        "method": wanted.method.label,
        "seed": wanted.seed,
        "target": wanted.target,
        "backbone": parts.frozen.label,
        "fingerprint": parts.frozen.fingerprint,
        "torch": metadata.version("torch"),
        "ended": time.time(),
        **cell.run(experiment, wanted.method, wanted.seed, made, parts),
    }


def _read(path: Path) -> Outcome | None:
    try:
        outcome = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return None  # torn by a crash of the machine: made anew
    return outcome if isinstance(outcome, dict) and "scores" in outcome else None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise StateError(
            f"{folder} cannot be made: {fault.strerror}; choose another {ELSEWHERE}."
        ) from fault
