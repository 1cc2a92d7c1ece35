"""Run all cells of an experiment: in several processes, each cell's outcome in a file of its own.

A cell is (method, seed, domain left out). Its file names what it was made from, so that a run that
was stopped goes on where it was, and a changed setting makes its cells anew and no others.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from fednode import __version__
from fednode.clip import backbone
from fednode.clip.settings import ModelSettings
from fednode.errors import FednodeError, StateError
from fednode.experiment import cell, scene
from fednode.experiment.files import learns, settings_of
from fednode.experiment.settings import Experiment, MethodSettings
from fednode.learn.build import use_threads, weights_of
from fednode.learn.cache import cache_of
from fednode.learn.features import Features
from fednode.learn.settings import CacheSettings
from fednode.storage.files import put

CELLS: Final = "cells"
ELSEWHERE: Final = "folder with --out"
PARTS: Final = ("model", "policy", "tuning", "privacy", "rounds", "guard", "limits", "topology")
"""The sections of a node's settings that an outcome depends on."""
Outcome = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run to be made. key: of all that its outcome depends on."""

    method: MethodSettings
    seed: int
    target: str
    key: str

    @property
    def file(self) -> str:
        """Name of its file."""
        shown = "".join(one if one.isalnum() else "-" for one in self.method.label.lower())
        parts = [shown, f"seed-{self.seed}", *([self.target] if self.target else []), self.key]
        return "_".join(parts) + ".json"

    @property
    def title(self) -> str:
        """For people."""
        return ", ".join([self.method.label, f"seed {self.seed}", *filter(None, [self.target])])


@dataclass(frozen=True, slots=True)
class Done:
    """A cell with its outcome; fault: why it has none."""

    cell: Cell
    outcome: Outcome
    fault: str = ""
    fresh: bool = True


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
    for name in ("title", "methods", "seeds", "smoke", "vary"):
        del tree[name]
    del tree["protocol"]["targets"]
    for name in ("templates", "domains"):  # files of before these settings keep their names
        if not tree["data"][name]:
            del tree["data"][name]
    own: dict[str, Any] = {"policy": method.policy, "tuning": method.tuning, "seed": seed}
    if learns(method):  # a default that changes makes another cell
        whole = asdict(settings_of(experiment, method, experiment.title, ("x",)))
        own["settings"] = {name: whole[name] for name in PARTS}
    if method.liars:
        own.update(liars=method.liars, lie=method.lie)
    own.update(target=target, rounds=method.rounds, version=__version__, experiment=tree)
    text = json.dumps(own, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run_all(
    experiment: Experiment,
    folder: Path,
    workers: int,
    progress: Callable[[Done], None],
    known: Mapping[str, Outcome] | None = None,
) -> list[Done]:
    """Run the cells that have no file in the folder yet; return all cells in order.

    progress: called for each cell as it ends. known: outcomes by the cell's key, which are not run
    again either.
    """
    todo, found = [], dict[str, Done]()
    for one in cells(experiment):
        held = _read(folder / CELLS / one.file) or (known or {}).get(one.key)
        if held is None:
            todo.append(one)
        else:
            found[one.file] = Done(one, held, fresh=False)
            progress(found[one.file])
    for done in _run(experiment, todo, folder, workers):
        found[done.cell.file] = done
        progress(done)
    return [found[one.file] for one in cells(experiment)]


def _run(experiment: Experiment, todo: list[Cell], folder: Path, workers: int) -> Iterator[Done]:
    if not todo:
        return
    _make(folder / CELLS)
    if workers == 1:
        use_threads(1)
        for one in todo:
            yield _ended(folder, one, partial(_outcome, experiment, one))
        return
    # Spawned, because torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    count = max(1, min(workers, len(todo)))
    with ProcessPoolExecutor(count, mp_context=context, initializer=_prepare) as pool:
        futures: dict[Future[Outcome], Cell] = {
            pool.submit(_outcome, experiment, one): one for one in todo
        }
        try:
            for future in as_completed(futures):
                yield _ended(folder, futures[future], future.result)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _prepare() -> None:
    """Give each process one thread: they share the processors, and bits do not hang on them.

    Ctrl-C reaches all processes of a terminal; the first one ends the others. When that one is
    killed it can end nobody, so they watch it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_threads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of an experiment"
    parent.join()
    os._exit(1)  # a cell under way is made anew by the next run


@lru_cache(maxsize=1)
def _parts(model: ModelSettings) -> cell.Parts:
    settings = CacheSettings()
    frozen, cache = backbone.load(model, weights_of(settings)), cache_of(settings)
    return cell.Parts(frozen, Features(frozen, cache), cache)


def _ended(folder: Path, one: Cell, work: Callable[[], Outcome]) -> Done:
    """Return a cell with its outcome, which is in its file by then, or with what went wrong."""
    try:
        outcome = work()
    except FednodeError as fault:
        return Done(one, {}, str(fault))
    except BrokenProcessPool:
        text = "a process of the experiment was ended, for lack of memory, say; use fewer --workers"
        return Done(one, {}, text)
    put(folder / CELLS / one.file, json.dumps(outcome, indent=1), ELSEWHERE)
    return Done(one, outcome)


def _outcome(experiment: Experiment, one: Cell) -> Outcome:
    parts = _parts(experiment.model)
    made = scene.scene(experiment, one.seed, one.target, parts.cache)
    return {
        "method": one.method.label,
        "seed": one.seed,
        "target": one.target,
        "backbone": parts.frozen.label,
        "fingerprint": parts.frozen.fingerprint,
        "torch": metadata.version("torch"),
        "ended": time.time(),
        **cell.run(experiment, one.method, one.seed, made, parts),
    }


def _read(path: Path) -> Outcome | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return None  # torn by a crash of the machine: made anew
    return found if isinstance(found, dict) and "scores" in found else None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise StateError(
            f"{folder} cannot be made: {fault.strerror}; choose another {ELSEWHERE}."
        ) from fault
